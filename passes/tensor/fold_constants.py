"""Constants and weights computed before the program runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, OpResult, SSAValue

from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.journal import count, decline, may
from headrace.dialects.tensor import shapes
from headrace.dialects.tensor.base import TensorOp, attributes_of, operands, tt
from headrace.dialects.tensor.shapes.collective import COMMUNICATING, PER_SOCKET
from headrace.dialects.tensor.storage import ConstantOp, WeightOp, constant, recipe, weight
from headrace.passes.analysis.derived import Keys, bytes_of, key
from headrace.passes.infra.base import Pass, option
from headrace.passes.tensor import _graph

if TYPE_CHECKING:
    from headrace.dialects.tensor.meaning import Array

VIEWS = frozenset(f"tensor.{name}" for name in ("reshape", "transpose", "slice", "broadcast"))
"""Ops that cost nothing as they are: the mapping folds them into addresses."""
SOURCES = frozenset((ConstantOp, WeightOp))
READ_MOST = 1 << 16
"""Most elements of constants that one op may read to be folded."""
WORK_MOST = 1 << 31
"""Most floating-point operations of an op on weights that is worth doing when the artifact is written."""


@dataclass(frozen=True)
class FoldConstantsPass(Pass):
    """Compute what depends on constants alone, and make derived weights of what depends on weights alone.

    Assumes nothing; works best after canonicalize and cse. Never reads the bytes of a weight: a derived weight is a
    `tensor.recipe`, evaluated when the artifact is written, under a key that says what it is. Small results of
    constants become constants, larger ones recipes. Views of a weight stay views when storing them would take more room
    than the weight alone (it is needed as it is, too); results larger than the weights they come from are left to the
    program.
    A constant has the location of the op it was folded from, a derived weight those of all its ops.

    Before: `%0 = tensor.weight "w"`, `%1 = tensor.transpose %0`, `tensor.matmul %x, %1`. After:

        tensor.recipe @"w|transpose" { %0 = tensor.weight "w" … tensor.yield %1 }
        … %0 = tensor.weight "w|transpose", tensor.matmul %x, %0
    """

    name: ClassVar[str] = "fold-constants"
    requires = ensures = _graph.TENSOR

    max_elements: int = option(1024, "largest tensor that becomes a constant", unit="elements", low=0)
    slack: int = option(65536, "room that storing views of one weight may take beyond the weight", unit="bytes", low=0)

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        return fold(module, self.max_elements, self.slack)


def fold(module: ModuleOp, max_elements: int, slack: int) -> bool:
    """Fold all functions of a module; True if changed."""
    changed = False
    table = Keys(module)
    for block in _graph.blocks(module):
        folded, failing = _fold_constants(block, max_elements)
        derived = _Derivation(module, block, max_elements, slack, table, failing).run()
        changed |= folded or derived
    return changed


def _foldable(op: Operation) -> bool:
    if type(op) in SOURCES or not isinstance(op, TensorOp) or _graph.is_terminator(op):
        return False
    return op.name not in COMMUNICATING  # others have a say in it when the program runs


def _reads_constants(op: Operation) -> bool:
    """Whether every operand is a constant."""
    for value in operands(op):  # noqa: SIM110 - asked of every op
        if type(_graph.producer(value)) is not ConstantOp:
            return False
    return True


def _fold_constants(block: Block, max_elements: int) -> tuple[bool, set[Operation]]:
    """Fold the ops on constants whose results are small; whether any was, and those that cannot be evaluated."""
    changed = False
    failing: set[Operation] = set()
    for op in _graph.ops(block):
        if not _reads_constants(op) or not _foldable(op) or op.name in PER_SOCKET:
            continue  # a constant is the same on every socket
        reads = sum(tt(x).elements for x in op.operands)
        if reads > READ_MOST or any(tt(x).elements > max_elements for x in op.results):
            continue  # a derived weight
        arrays = _evaluate(op)
        if arrays is None:
            failing.add(op)
            continue
        if not may("fold-constant", op):
            break
        _graph.replace(op, _constants(arrays, op))
        changed = True
    return changed, failing


def _evaluate(op: Operation) -> Sequence[Array] | None:
    """The results of an op on constants; None when it has none."""
    import numpy as np

    from headrace.dialects.tensor import meaning

    arrays = [x.array() for x in map(_graph.producer, op.operands) if isinstance(x, ConstantOp)]
    try:
        with np.errstate(all="ignore"):
            return meaning.evaluate(op.name, attributes_of(op), *arrays)
    except (CompileError, ArithmeticError, LookupError, ValueError) as error:
        decline("fold-constant", op, f"it fails when it is evaluated: {error}")
        return None


def _constants(arrays: Sequence[Array], op: Operation) -> list[SSAValue]:
    """Arrays as constants in front of `op`."""
    values: list[SSAValue] = []
    block = op.parent
    assert block is not None
    for array in arrays:
        count("bytes folded", array.nbytes)
        new = constant(array, op.location)
        block.insert_op_before(new, op)
        values.append(new.result)
    return values


@dataclass
class _Chain:
    """How a value comes from weights: its ops in order, sources included, and the weights among them."""

    value: SSAValue
    ops: list[Operation]
    weights: list[WeightOp]

    @property
    def steps(self) -> list[Operation]:
        """The ops that compute."""
        return [op for op in self.ops if not isinstance(op, ConstantOp | WeightOp)]

    @property
    def is_view(self) -> bool:
        """Whether the ops only look at one weight in another way."""
        return len(self.weights) == 1 and all(op.name in VIEWS for op in self.steps)


@dataclass
class _Derivation:
    """Derived weights of one block."""

    module: ModuleOp
    block: Block
    max_elements: int
    slack: int
    table: Keys
    kept: set[Operation]
    """Ops that stay in the program."""
    loads: dict[str, list[WeightOp]] = field(default_factory=dict[str, list[WeightOp]])
    """The weights of the block by key."""

    def run(self) -> bool:
        candidates = self.candidates()
        if not candidates:
            return False
        for op in _graph.ops(self.block):
            if type(op) is WeightOp:
                self.loads.setdefault(op.key.data, []).append(op)
        while True:
            chains = [self.chain(value) for value in self.frontier(candidates)]
            before = len(self.kept)
            self.judge(chains)
            if len(self.kept) == before:
                break
        changed = False
        for chain in chains:
            maker = _graph.producer(chain.value)
            assert maker is not None
            if not may("derive-weight", maker):
                break
            self.store(chain, candidates)
            changed = True
        if changed:
            _graph.erase_dead(candidates)
        return changed

    def candidates(self) -> dict[Operation, None]:
        """The ops that depend on weights and constants alone, in order, sources left out."""
        found: dict[Operation, None] = {}
        for op in _graph.ops(self.block):
            if self.derives(op, found) and _foldable(op):
                found[op] = None
        return found

    def derives(self, op: Operation, among: dict[Operation, None]) -> bool:
        """Whether every operand is a source, or made by an op that is `among` those that derive and not kept."""
        for value in operands(op):
            maker = _graph.producer(value)
            if maker is None or (type(maker) not in SOURCES and (maker not in among or maker in self.kept)):
                return False
        return True

    def frontier(self, candidates: dict[Operation, None]) -> list[SSAValue]:
        """The results of candidates that the program needs as values. An op that is kept keeps those that use it."""
        for op in candidates:
            if op not in self.kept and not self.derives(op, candidates):
                self.kept.add(op)
        return [
            result
            for op in candidates
            if op not in self.kept
            for result in op.results
            if any(self.stays(use.operation, candidates) for use in result.uses)
        ]

    def stays(self, op: Operation, candidates: dict[Operation, None]) -> bool:
        """Whether an op is in the program when all is done."""
        return op not in candidates or op in self.kept

    def chain(self, value: SSAValue) -> _Chain:
        ops: dict[Operation, None] = {}
        path = [(_graph.producer(value), False)]
        while path:
            op, ready = path.pop()
            assert op is not None
            if ready:
                ops[op] = None
            elif op not in ops:
                path.append((op, True))
                path += [(_graph.producer(x), False) for x in reversed(op.operands)]
        weights = {op.key.data: op for op in ops if isinstance(op, WeightOp)}
        return _Chain(value, list(ops), list(weights.values()))

    def judge(self, chains: list[_Chain]) -> None:
        """Mark what must stay in the program."""
        views: dict[str, list[_Chain]] = {}
        for chain in chains:
            if chain.is_view:
                views.setdefault(chain.weights[0].key.data, []).append(chain)
                continue
            reason = self.refusal(chain)
            if reason:
                self.keep(chain.steps[-1:], reason)
        for name, of_weight in views.items():
            whole = bytes_of(tt(of_weight[0].weights[0].result))
            needed = sum({key(c.value): bytes_of(tt(c.value)) for c in of_weight}.values())
            if self.needed_whole(name, of_weight):
                needed += whole
            if needed > whole + self.slack:
                reason = f"storing views of '{name}' would take {needed} bytes instead of {whole}"
                self.keep((op for c in of_weight for op in c.steps), reason)

    def refusal(self, chain: _Chain) -> str:
        type = tt(chain.value)
        size = bytes_of(type)
        limit = sum(bytes_of(tt(w.result)) for w in chain.weights)
        if chain.weights and size > limit and type.elements > self.max_elements:
            return f"its {size} bytes are more than the {limit} it comes from"
        work = 0
        for op in chain.steps:
            inputs, results = [tt(x) for x in op.operands], [tt(x) for x in op.results]
            work += shapes.flops(op.name, attributes_of(op), inputs, results)
        return f"it takes {work} operations to compute" if work > WORK_MOST else ""

    def needed_whole(self, name: str, chains: Iterable[_Chain]) -> bool:
        """Whether something besides the views of a weight needs it."""
        inside = {op for chain in chains for op in chain.ops}
        return any(use.operation not in inside for op in self.loads[name] for use in op.result.uses)

    def keep(self, ops: Iterable[Operation], reason: str) -> None:
        for op in ops:
            self.kept.add(op)
            decline("derive-weight", op, reason)

    def store(self, chain: _Chain, candidates: dict[Operation, None]) -> None:
        """Write the recipe of a chain, unless it is there, and use its weight."""
        maker = _graph.producer(chain.value)
        assert isinstance(chain.value, OpResult) and maker is not None
        location = locations.fuse(op.location for op in chain.steps)
        name = self.write(chain, location)
        new = weight(name, tt(chain.value), location)
        self.block.insert_op_before(new, maker)
        chain.value.replace_uses_with_if(new.result, lambda use: self.stays(use.operation, candidates))

    def write(self, chain: _Chain, location: locations.Location) -> str:
        copies: dict[SSAValue, SSAValue] = {}
        body = [op.clone(copies) for op in chain.ops]
        made = recipe(key(chain.value), body, copies[chain.value], location)
        func = self.block.parent_op()
        assert func is not None
        return self.table.add(made, func)
