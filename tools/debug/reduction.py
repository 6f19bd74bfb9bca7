"""Makes a program smaller while something about it stays true.

    small = reduce(module, lambda m: crashes(m))

Whole ops go first (values that they made become arguments, values that they took become results), in halves, then in
ever smaller parts; then calls and functions, single ops, arguments, shapes, and what is inside sections and other
regions. Every program that is tried is valid and tried once; the result is one from which nothing more can be taken.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute

from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.program import faults
from headrace.passes.infra.verify import offences
from headrace.tools.debug import edits, streams
from headrace.tools.debug.edits import Unfit
from headrace.tools.debug.failures import Interesting, Progress, Trial, print_module
from headrace.tools.debug.numbers import quiet
from headrace.tools.debug.sizes import Classes, Dim, resize

MOST = 2000
"""Programs tried by default."""
RESULT = 1
"""Results a function keeps at least."""

Edit = Callable[[ModuleOp], None]


def reduce(
    module: ModuleOp,
    interesting: Interesting,
    *,
    most: int = MOST,
    progress: Progress | None = None,
    near: Attribute | None = None,
) -> ModuleOp:
    """The smallest program found for which `interesting` holds; `module` stays as it is. At most `most` programs are
    tried, first what stands at and around the place `near`. `CompileError` when `interesting` does not hold for
    `module` itself.

    `interesting` is given a valid program and must not change it.
    """
    reducer = Reducer(module.clone(), interesting, most, progress or quiet, near)
    reducer.run()
    return reducer.best


def reduce_failure(
    module: ModuleOp,
    trial: Trial,
    *,
    most: int = MOST,
    progress: Progress | None = None,
    near: Attribute | None = None,
) -> tuple[ModuleOp, Trial]:
    """The smallest program found with the failure that a trial has on `module`, and the trial that has it: that of the
    pass that fails where the program before it is one of whole tensors, else of the passes that it takes.

    `CompileError` when nothing fails.
    """
    trial, ended = trial.settled(module)
    if not ended.found:
        raise trial.nothing(ended)
    if ended.failure is not None and ended.before is not None:
        trial = replace(trial, passes=trial.passes[: ended.failure.number + 1])
        alone = replace(trial, passes=trial.passes[-1:])
        if edits.is_tensor_program(ended.before) and alone(ended.before):
            module, trial = ended.before, alone
    trial = replace(trial, numbers=trial.numbers.recording(module))
    small = reduce(module, trial, most=most, progress=progress, near=near)
    return small, _fewer_passes(small, trial)


def _fewer_passes(module: ModuleOp, trial: Trial) -> Trial:
    """The trial without the passes that it does not take."""
    for one in trial.passes[-2::-1]:
        shorter = replace(trial, passes=tuple(x for x in trial.passes if x is not one))
        if shorter(module):
            trial = shorter
    return trial


@dataclass
class Reducer:
    """The smallest program so far, and the verdicts on all that were tried."""

    best: ModuleOp
    interesting: Interesting
    most: int
    say: Progress
    near: Attribute | None = None
    tried: int = 0
    """Programs for which `interesting` was asked."""
    verdicts: dict[bytes, bool] = field(default_factory=dict[bytes, bool])

    def run(self) -> None:
        """Reduce until nothing helps, or the budget is spent."""
        edits.name_values(self.best)
        self.most = max(self.most, 1)
        if not self._verdict(self.best):
            raise CompileError(
                "not-interesting",
                "what is looked for is not there in the program to be reduced",
                fix="check the pipeline, the predicate and the seeds of weights and inputs",
            )
        try:
            if self.near is not None:
                self._around(self.near)
            while True:
                before = self._text(self.best)
                self._attributes()
                self._ops()
                self._calls()
                self._single_ops()
                self._arguments()
                self._erase()
                self._sections()
                self._sizes()
                if self._text(self.best) == before:
                    return
        except _Spent:
            return

    def attempt(self, edit: Edit) -> bool:
        """Make an edit on a copy; keep the copy when it is valid, another program, and interesting."""
        candidate = self.best.clone()
        try:
            edit(candidate)
            edits.drop_unused(candidate)
        except Unfit:
            return False
        if not self._verdict(candidate):
            return False
        self.best = candidate
        self.say(f"{count(candidate)} ops after {self.tried} programs")
        return True

    def _verdict(self, candidate: ModuleOp) -> bool:
        key = hashlib.sha256(self._text(candidate).encode()).digest()
        found = self.verdicts.get(key)
        if found is None:
            if offences(candidate, 1) or faults(candidate):
                found = False
            else:
                if self.tried >= self.most:
                    raise _Spent
                self.tried += 1
                found = self.interesting(candidate)
            self.verdicts[key] = found
        return found

    def _text(self, module: ModuleOp) -> str:
        return print_module(module)

    def _halves(self, size: Callable[[], int], without: Callable[[Collection[int], Collection[int]], Edit]) -> None:
        """Take parts out of a list, large parts first: `without(kept, gone)` makes the edit, `size()` is the length."""
        part = max(size(), 1)
        while part:
            at = 0
            while at < size():
                everything = range(size())
                gone = everything[at : at + part]
                kept = [i for i in everything if i not in gone]
                if not self.attempt(without(kept, gone)):
                    at += part
            part = min(part // 2, size())

    # What is tried, coarse to fine

    def _around(self, place: Attribute) -> None:
        """Nothing but the ops of a place, or these and what they read and what reads them."""
        for number, func in enumerate(edits.roots(self.best)):
            for kept in edits.around(func, place):
                if self.attempt(lambda m, number=number, kept=kept: edits.keep_ops(edits.roots(m)[number], kept)):
                    return

    def _ops(self) -> None:
        """Ops of functions whose signature is free."""
        for number in range(len(edits.roots(self.best))):

            def results(number: int = number) -> int:
                return len(edits.roots(self.best)[number].function_type.outputs)

            def without_results(kept: Collection[int], _: Collection[int], number: int = number) -> Edit:
                return lambda module: edits.keep_results(edits.roots(module)[number], _some(kept))

            def ops(number: int = number) -> int:
                return len(edits.body(edits.roots(self.best)[number].body.block))

            def without_ops(kept: Collection[int], _: Collection[int], number: int = number) -> Edit:
                return lambda module: edits.keep_ops(edits.roots(module)[number], kept)

            self._halves(results, without_results)
            self._halves(ops, without_ops)
            self._halves(results, without_results)

    def _calls(self) -> None:
        """Calls, by what is called."""
        for name in sorted(edits.called(self.best)):
            if self.attempt(lambda module, name=name: edits.inline(module, name)):
                self._ops()

    def _single_ops(self) -> None:
        """Ops for which one of their operands, or a constant, can stand."""
        for block in range(len(edits.blocks(self.best))):
            position = 0
            while block < len(found := edits.blocks(self.best)) and position < len(ops := edits.body(found[block])):
                operands = range(len(ops[position].operands))
                tries: list[Edit] = [
                    *(lambda m, b=block, p=position, i=i: edits.forward(m, b, p, i) for i in operands),
                    lambda m, b=block, p=position: edits.make_constant(m, b, p),
                ]
                if not any(self.attempt(edit) for edit in tries):
                    position += 1
                elif position >= len(edits.body(edits.blocks(self.best)[block])):
                    break

    def _arguments(self) -> None:
        """Arguments that nobody uses, or for which another can stand."""
        for number in range(len(edits.roots(self.best))):
            self.attempt(lambda module, number=number: edits.drop_arguments(edits.roots(module)[number]))
            later = 1
            while later < len(edits.roots(self.best)[number].body.block.args):

                def merged(module: ModuleOp, kept: int, number: int = number, gone: int = later) -> None:
                    edits.merge_arguments(edits.roots(module)[number], kept, gone)

                if not any(self.attempt(lambda m, kept=kept: merged(m, kept)) for kept in range(later)):
                    later += 1

    def _erase(self) -> None:
        """Ops without results: functions and recipes; units, flows, regions and launches."""
        for block in range(len(edits.blocks(self.best))):

            def free(block: int = block) -> int:
                found = edits.blocks(self.best)
                return edits.count_free(found[block]) if block < len(found) else 0

            def without(_: Collection[int], gone: Collection[int], block: int = block) -> Edit:
                return lambda module: edits.erase(module, block, gone)

            self._halves(free, without)

    def _sections(self) -> None:
        """Ops of sections: their streams are loaded and stored instead."""
        for number in range(len(streams.sections(self.best))):

            def ops(number: int = number) -> int:
                found = streams.sections(self.best)
                return len(streams.movable(found[number])) if number < len(found) else 0

            def without(_: Collection[int], gone: Collection[int], number: int = number) -> Edit:
                return lambda module: streams.cut(module, number, gone)

            self._halves(ops, without)
        for number in reversed(range(len(streams.takers(self.best)))):
            self.attempt(lambda module, number=number: streams.drop_inputs(module, number))

    def _sizes(self) -> None:
        """Dims, those that go together at once; first all of one size."""
        try:
            classes = Classes(self.best).classes()
        except Unfit:
            return
        for size in sorted({size for size, _ in classes if size > 1}, reverse=True):
            for least in _smaller(size):
                if self._resized({dim: least for of, dims in classes if of == size for dim in dims}):
                    break
        number = 0
        while number < len(classes := Classes(self.best).classes()):  # sizes that get equal may join classes
            size, dims = classes[number]
            any(self._resized(dict.fromkeys(dims, least)) for least in _smaller(size))
            number += 1

    def _resized(self, wanted: dict[Dim, int]) -> bool:
        return self.attempt(lambda module: resize(module, wanted))

    def _attributes(self) -> None:
        """What the module says beside its ops, such as the device."""
        for name in list(self.best.attributes):
            self.attempt(lambda module, name=name: edits.drop_attribute(module, name))


class _Spent(Exception):
    """The budget is spent."""


def _some(kept: Collection[int]) -> Collection[int]:
    if len(kept) < RESULT:
        raise Unfit
    return kept


def _smaller(size: int) -> list[int]:
    """Sizes to try in place of one, the smallest first."""
    return sorted({n for n in (1, 2, 3, size // 2) if 0 < n < size})


def count(module: ModuleOp) -> int:
    """The ops of a program but modules, functions and what ends them: what a reader calls its ops."""
    return sum(len(edits.body(block)) for block in edits.blocks(module)) - edits.count_free(module.body.block)
