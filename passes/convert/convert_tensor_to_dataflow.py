"""convert-tensor-to-dataflow: functions of tensor ops become functions of sections of stages, buffers and transfers."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from headrace.dialects.machine.attributes import DEVICE_ATTRIBUTE, device_of
from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import Collector
from headrace.dialects.support.journal import count, decline
from headrace.dialects.tensor.base import attributes_of, create, tt
from headrace.dialects.tensor.program import signature
from headrace.dialects.tensor.storage import ConstantOp, WeightOp, recipe, weight
from headrace.passes.analysis.views import bases, is_movement, producer, resolve
from headrace.passes.convert._empty import drop_unused, settle_empty
from headrace.passes.convert._forward import forward_rows
from headrace.passes.convert._ownership import Ownership, all_of, is_part, is_row_write
from headrace.passes.convert._section import SectionPlan
from headrace.passes.infra.base import Pass, option

SOURCES = (WeightOp, ConstantOp)


@dataclass(eq=False)
class _Segment:
    """Compute ops that become one section, and the call or return that follows it, if one does."""

    ops: list[Operation] = field(default_factory=list[Operation])
    end: Operation | None = None
    exports: dict[SSAValue, None] = field(default_factory=dict[SSAValue, None])
    """Values that the section must store."""
    copies: dict[Operation, SSAValue] = field(default_factory=dict[Operation, SSAValue])
    """Row writes into a copy of a tensor, and that tensor."""
    in_place: dict[Operation, SSAValue] = field(default_factory=dict[Operation, SSAValue])
    """Row writes into the tensor itself."""


def _moves(value: SSAValue) -> bool:
    """Whether a value is made by a movement op."""
    op = producer(value)
    return op is not None and is_movement(op)


def _ends_section(op: Operation) -> bool:
    return type(op) in (func.CallOp, func.ReturnOp)


class _Function:
    """Rewrites one function: compute ops between calls gather into sections."""

    def __init__(self, function: func.FuncOp, module: ModuleOp, ownership: Ownership, transposes: str) -> None:
        self.function = function
        self.transposes = transposes
        self.module = module
        self.ownership = ownership
        self.name = function.sym_name.data
        self.block = function.body.block

    def plan(self) -> None:
        """Decide what goes into which section. All functions are planned before one is rewritten: what may be written
        in place is read off the ops of its callers and callees."""
        self.claimed: dict[SSAValue, SSAValue] = {}  # values and whose memory they are written into
        self.copied: set[SSAValue] = set()  # results that must not share memory with what they are views of
        self._settle_results()
        self.ops = list(self.block.ops)
        self.segments = self._cut()
        self.home = {op: segment for segment in self.segments for op in segment.ops}
        for segment in self.segments:
            for op in segment.ops:
                for value in op.operands:
                    self._export_bases(value, segment)
        for segment in self.segments:
            if segment.end is not None:
                for value in segment.end.operands:
                    self._export(value, segment)

    def rewrite(self) -> bool:
        """Rewrite it; whether anything changed."""
        self._rewrite()
        return [op.name for op in self.ops] != [op.name for op in self.block.ops]

    def _settle_results(self) -> None:
        """Copy what a private function returns of its arguments, so that no result of a call shares memory with an
        operand, and what a program returns of its states, which change when it ends. Note which results of a private
        function callers may want somewhere."""
        last = self.block.last_op
        assert last is not None
        kept: dict[SSAValue, int] = {self.block.args[i]: j for i, j in self._states().items()}
        for i, value in enumerate(last.operands):
            changing = [b for b in bases(value) if isinstance(b, BlockArgument) and (self.name != "main" or b in kept)]
            if changing and not (self.name == "main" and kept.get(value) == i):
                copy = create("tensor.reshape", [value], {"shape": tt(value).shape}, locations.of_value(value))
                self.block.insert_op_before(copy, last)
                last.operands[i] = copy.results[0]
                self.copied.add(copy.results[0])
            elif self.name != "main" and (ref := all_of(value)) is not None:
                self.claimed[ref.root] = value

    def _states(self) -> dict[int, int]:
        """For each argument of the program that is a state, the result that replaces it."""
        if self.name != "main":
            return {}
        names = signature(self.function)
        return {names.inputs.index(past): names.results.index(present) for past, present in names.states}

    # -- cutting -------------------------------------------------------------------------------------------------

    def _cut(self) -> list[_Segment]:
        """The segments of the function. Calls end one, and so does a row write before an op that reads the result, or
        after an op that reads the rows that it replaces."""
        segments = [_Segment()]
        for op in self.ops:
            if _ends_section(op):
                if self._reads_written(op, segments[-1]):
                    segments.append(_Segment())
                segments[-1].end = op
                segments.append(_Segment())
            elif type(op) not in SOURCES and not is_movement(op):
                if self._reads_written(op, segments[-1]):
                    segments.append(_Segment())
                if is_row_write(op):
                    self._plan_write(op, segments)
                segments[-1].ops.append(op)
        return segments

    def _reads_written(self, op: Operation, segment: _Segment) -> bool:
        written = {w.results[0] for w in (*segment.in_place, *segment.copies)}
        return any(base in written for value in op.operands for base in bases(value))

    def _plan_write(self, op: Operation, segments: list[_Segment]) -> None:
        """Decide whether rows are written in place, into a copy off chip, or (what the open section makes) on chip."""
        data = op.operands[0]
        ref = all_of(data)
        if ref is None or _moves(ref.root) or producer(ref.root) in segments[-1].ops:
            return
        if not self.ownership.may_overwrite(ref.root, op):
            reason = "the tensor is not the program's own, or an op reads the old rows later: a copy is written"
            decline("write-in-place", op, reason)
            segments[-1].copies[op] = data
            return
        if any(ref.root in bases(value) for other in segments[-1].ops for value in other.operands):
            segments.append(_Segment())
        count("writes in place")
        segments[-1].in_place[op] = data

    # -- what crosses sections -----------------------------------------------------------------------------------

    def _export_bases(self, value: SSAValue, segment: _Segment | None) -> None:
        """Let the sections that make the bases of a value store them, but `segment`, which has them."""
        for base in bases(value):
            home = self.home.get(producer(base))  # pyright: ignore[reportArgumentType, reportCallIssue]
            if home is not None and home is not segment:
                home.exports[base] = None

    def _export(self, value: SSAValue, segment: _Segment) -> None:
        """Make an operand of a call or return available: as a view of what lies off chip, or stored by the section
        before."""
        shared = self.name != "main" and isinstance(segment.end, func.ReturnOp)
        if self._stays_outside(value) and not (shared and is_part(value)):
            self._export_bases(value, None)
        else:
            self._export_bases(value, segment)
            segment.exports[value] = None

    def _stays_outside(self, value: SSAValue) -> bool:
        """Whether a value is a dense view of something off chip, or a concatenation whose parts are written where they
        belong."""
        if value in self.copied:
            return False
        if not _moves(value):
            return True
        parts = self._parts(value)
        if parts is not None:
            roots = [resolve(part).root for part in parts]
            if any(self.claimed.get(root, value) is not value for root in roots):
                return False
            self.claimed.update(dict.fromkeys(roots, value))
            return True
        ref = resolve(value)
        return ref.contiguous and not _moves(ref.root)

    def _parts(self, value: SSAValue) -> list[SSAValue] | None:
        """The parts of a concatenation of blocks, each all of a value that can be made where it belongs; else None."""
        op = producer(value)
        if op is None or op.name != "tensor.concat":
            return None
        shape = tt(value).shape
        refs = [all_of(part) for part in op.operands]
        roots = [ref.root for ref in refs if ref is not None and self.ownership.placeable(ref.root)]
        blocks = prod(shape[: attributes_of(op)["axis"] % len(shape)]) == 1
        return list(op.operands) if blocks and len(set(roots)) == len(refs) else None

    # -- writing -------------------------------------------------------------------------------------------------

    def _rewrite(self) -> None:
        self.mapped: dict[SSAValue, SSAValue] = {a: a for a in self.block.args}
        self.new: list[Operation] = []
        for op in self.ops:
            if type(op) in SOURCES:
                self._add(op, op)
        number = 0
        for segment in self.segments:
            if segment.ops or segment.exports:
                self._section(segment, f"{self.name}_{number}")
                number += 1
            if segment.end is not None:
                for value in segment.end.operands:
                    self._outside(value)
                self._add(self._copy(segment.end), segment.end)
        kept = {id(op) for op in self.new}
        for op in reversed(self.ops):
            op.detach()
        for op in reversed(self.ops):
            if id(op) not in kept:
                op.drop_all_references()
        self.block.add_ops(self.new)
        self._settle_constants()

    def _add(self, copy: Operation, op: Operation) -> None:
        self.new.append(copy)
        for old, new in zip(op.results, copy.results, strict=True):
            self.mapped.setdefault(old, new)  # one part of a split may be a section's already

    def _outside(self, value: SSAValue) -> SSAValue:
        """The new value for an old one that lies off chip, or is a view of one that does."""
        if value not in self.mapped:
            op = producer(value)
            assert op is not None and is_movement(op), f"{self.name}: {op} is not available between sections"
            same = [self._outside(operand) is operand for operand in op.operands]
            self._add(op if all(same) else self._copy(op), op)
        return self.mapped[value]

    def _copy(self, op: Operation) -> Operation:
        return op.clone({value: self.mapped[value] for value in op.operands})

    def _section(self, segment: _Segment, name: str) -> None:
        tables = dict(segment.in_place)
        for i, (op, data) in enumerate(segment.copies.items()):
            plan = SectionPlan(f"{name}_copy{i}", (), {})
            plan.store(data)
            copy = plan.write(self._outside, [data], op.location)
            self.new.append(copy)
            tables[op] = copy.outs[0]
            self.mapped[copy.outs[0]] = copy.outs[0]
        plan = SectionPlan(name, segment.ops, tables, self.transposes)
        for op in segment.ops:
            plan.compute(op)
        for value in segment.exports:
            plan.store(value)
        origins = [op.location for op in segment.ops] or [locations.of_value(value) for value in segment.exports]
        made = plan.write(self._outside, list(segment.exports), locations.fuse(origins))
        self.new.append(made)
        self.mapped.update(zip(segment.exports, made.outs, strict=True))

    def _settle_constants(self) -> None:
        """Constants that memory holds (a unit's body holds scalars only) become weights made by recipes; what nothing
        reads goes."""
        count = 0
        for op in list(self.block.ops):
            if not isinstance(op, WeightOp | ConstantOp):
                continue
            if op.result.first_use is not None and isinstance(op, ConstantOp):
                key = f"constant|{self.name}|{count}"
                count += 1
                copy = op.clone()
                self.module.body.block.insert_op_before(recipe(key, [copy], copy.result, op.location), self.function)
                made = weight(key, tt(op.result), op.location)
                self.block.insert_op_before(made, op)
                op.result.replace_all_uses_with(made.result)
            if op.result.first_use is None:
                op.detach()
                op.erase()


@dataclass(frozen=True)
class ConvertTensorToDataflowPass(Pass):
    """Turn functions of tensor ops into sections of stages joined by buffers.

    Assumes static shapes. Every compute op becomes one stage on whole tensors (tiling comes later); the ops between two
    calls form one section. Movement ops (reshape, transpose, slice, broadcast, concat, pad, split) are folded into the
    views of loads, stores and buffers; where no view expresses one, a copying stage is put in. A gather of rows of an
    off-chip table stays off chip. Rows that are replaced at run-time indices are written in place where nothing reads
    the old ones and the memory is the program's own, else into a copy. Ops that read a tensor after one of its rows was
    written in place (attention over a cache) read it in the next section; with `forward`, the old tensor with the new
    row put in its place, in the section that writes.

        %1 = tensor.transpose %0 {perm = array<i64: 1, 0>} …     =>   %b = dataflow.buffer %s [… at 0 [8, 1]] … to
        %2 = tensor.add %1, %x …                                       [… at 0 [1, 8]] …
                                                                       %t = dataflow.stage "add_0"(%b, …) …
    """

    name = "convert-tensor-to-dataflow"
    forward: float = option(
        0.0, "largest share of the on-chip memory of a tensor whose new row is forwarded to its readers", low=0.0
    )
    transposes: str = option(
        "views",
        "what a transpose of what the section makes becomes: views, or stages that copy",
        choices=("views", "stages"),
    )

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        functions = [op for op in module.body.block.ops if isinstance(op, func.FuncOp) and op.body.blocks]
        found = Collector()
        changed = False
        for function in functions:
            changed |= settle_empty(function.body.block, found)
            changed |= drop_unused(function.body.block)
        found.raise_if_any()
        ownership = Ownership(module)
        for function in functions:
            forward_rows(function, module, ownership, self._most(module))
        planned = [_Function(function, module, ownership, self.transposes) for function in functions]
        for one in planned:
            one.plan()
        for one in planned:
            changed |= one.rewrite()
        return changed

    def _most(self, module: ModuleOp) -> int:
        """Bytes of the largest tensor whose new row is forwarded; none where no device is known."""
        if not self.forward or DEVICE_ATTRIBUTE not in module.attributes:
            return 0
        device = device_of(module)
        return int(self.forward * device.count("pmu") * device.pmu.bytes)
