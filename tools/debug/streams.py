"""Smaller sections: what an op of a section reads is loaded, and what it made is stored, when its neighbours go."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from headrace.dialects.dataflow.ops import LoadOp, SectionOp, StageOp, StoreOp, YieldOp, stream_of
from headrace.dialects.dataflow.types import StreamType
from headrace.dialects.support.access import identity
from headrace.dialects.tensor.base import ir_type
from headrace.dialects.tensor.program import signature
from headrace.tools.debug import edits
from headrace.tools.debug.edits import Resigned, Unfit


def sections(module: ModuleOp) -> list[SectionOp]:
    """The sections of functions whose signature is free, in order."""
    return [op for func in edits.roots(module) for op in func.body.block.ops if isinstance(op, SectionOp)]


def movable(section: SectionOp) -> list[Operation]:
    """The ops of a section that may be cut out of it. Loads and stores are not: they are what a cut leaves."""
    return [op for op in edits.body(section.body.block) if not isinstance(op, LoadOp | StoreOp)]


def cut(module: ModuleOp, number: int, gone: Collection[int]) -> None:
    """Take the ops at these positions of a section away, with the loads and stores that only they need."""
    section = sections(module)[number]
    block, ops = section.body.block, movable(section)
    func = section.parent_op()
    if not isinstance(func, FuncOp):
        raise Unfit
    told = signature(func)
    resigned = Resigned(func, told)
    last = _yield(section)
    leaving = {ops[i] for i in gone}
    streams = [
        x
        for op in ops
        if op in leaving
        for x in op.operands
        if isinstance(x.type, StreamType) and x.owner not in leaving
    ]
    leaving |= {
        use.operation for op in leaving for x in op.results for use in x.uses if isinstance(use.operation, StoreOp)
    }
    inputs = list(section.ins)
    for op in [x for x in block.ops if x in leaving]:
        for value in op.results:
            if any(use.operation not in leaving and use.operation is not last for use in value.uses):
                loaded = _load(section, value, resigned, inputs)
                value.replace_uses_with_if(loaded, lambda use: use.operation not in leaving)
    yields = [(old, x) for old, x in zip(section.outs, last.values, strict=True) if x.owner not in leaving]
    dropped = [x for x in section.outs if x not in {old for old, _ in yields}]
    for op in leaving:
        op.detach()
    last.operands = [x for _, x in yields]
    for op in leaving:
        op.drop_all_references()
    stored = [
        _store(last, x) for x in dict.fromkeys(streams) if x.first_use is None and not isinstance(x.owner, LoadOp)
    ]
    last.operands = [*last.operands, *stored]
    for op in reversed(edits.body(block)):
        if isinstance(op, LoadOp) and op.out.first_use is None:
            op.detach()
            op.drop_all_references()
    for i in reversed(range(len(block.args))):
        if block.args[i].first_use is None:
            block.erase_arg(block.args[i])
            del inputs[i]
    if not last.operands:
        raise Unfit
    _replace(section, inputs, [old for old, _ in yields], dropped, resigned)


def drop_inputs(module: ModuleOp, position: int) -> None:
    """Drop the inputs that the body of a section or a stage does not read, and what is left without use by that."""
    op = takers(module)[position]
    block = op.body.block
    idle = [x.index for x in block.args if x.first_use is None]
    if not idle or op.parent is None:
        raise Unfit
    inputs = [x for i, x in enumerate(op.ins) if i not in idle]
    for i in reversed(idle):
        block.erase_arg(block.args[i])
    op.operands = inputs
    edits.erase_dead(op.parent)


def takers(module: ModuleOp) -> list[SectionOp | StageOp]:
    """The sections and stages of a module, in order."""
    return [op for op in module.walk() if isinstance(op, SectionOp | StageOp)]


def _load(section: SectionOp, value: SSAValue, resigned: Resigned, inputs: list[SSAValue]) -> SSAValue:
    """A stream as it comes from a new argument of the function; a tensor as that argument."""
    of = value.type
    whole = ir_type(of.full) if isinstance(of, StreamType) else of
    outer = resigned.add_argument(value, whole)
    inner = section.body.block.insert_arg(whole, len(section.body.block.args), outer.location)
    inputs.append(outer)
    if not isinstance(of, StreamType):
        return inner
    load = LoadOp(inner, identity(of.full.shape), of)
    load.location = section.location
    first = section.body.block.first_op
    assert first is not None
    section.body.block.insert_op_before(load, first)
    return load.out


def _store(last: YieldOp, value: SSAValue) -> SSAValue:
    """The tensor that a stream is stored in."""
    stream = stream_of(value)
    if not stream.partitions:
        raise Unfit
    of = value.type
    assert isinstance(of, StreamType)
    store = StoreOp([value], [identity(of.full.shape)], ir_type(of.full))
    store.location = last.location
    block = last.parent
    assert block is not None
    block.insert_op_before(store, last)
    return store.tensor


def _replace(
    section: SectionOp,
    inputs: list[SSAValue],
    kept: Sequence[SSAValue],
    dropped: Sequence[SSAValue],
    resigned: Resigned,
) -> None:
    """Put the section in its place anew, with the results that it has now; the function returns those it has more."""
    func, told = resigned.func, resigned.told
    last = func.body.block.last_op
    block = section.parent
    assert last is not None and block is not None
    types = [x.type for x in _yield(section).operands]
    new = SectionOp(section.sym.data, inputs, types, section.detach_region(section.body))
    new.location = section.location
    block.insert_op_before(new, section)
    for old, value in zip(kept, new.outs, strict=False):
        old.replace_all_uses_with(value)
    results = [(x, name) for x, name in zip(last.operands, told.results, strict=True) if x not in dropped]
    for value in dropped:
        if any(use.operation is not last for use in value.uses):
            fresh = resigned.add_argument(value)
            value.replace_uses_with_if(fresh, lambda use: use.operation is not last)
    taken = {name for _, name in results}
    results += [(x, edits.unique(f"s{i}", taken)) for i, x in enumerate(new.outs[len(kept) :])]
    last.operands = [x for x, _ in results]
    section.detach()
    section.drop_all_references()
    edits.erase_dead(func.body.block)
    resigned.finish([name for _, name in results])


def _yield(section: SectionOp) -> YieldOp:
    last = section.body.block.last_op
    if not isinstance(last, YieldOp):
        raise Unfit
    return last
