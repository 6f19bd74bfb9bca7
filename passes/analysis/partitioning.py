"""Which forms the values of a program take on the sockets of a mesh: a beam search over the ops in their order.

For each op the ways to compute it on blocks are weighed: as its operands lie, with what they lack cut off, joined or
combined, and, for products with weights, with the weights cut along parts of the mesh that are still free. Values that
come from weights, constants and states alone have no form of their own; they are made in the form that is asked for.
A function is planned once for each way in which its arguments come.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from statistics import median
from typing import Any, NamedTuple

from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from headrace.dialects.support import dtypes
from headrace.dialects.support.journal import Candidate
from headrace.dialects.tensor import decompositions
from headrace.dialects.tensor.base import attributes_of, operands, tt
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.storage import WeightOp
from headrace.passes.analysis.sharding import (
    CONTRACTIONS,
    DIVIDING,
    LINEAR,
    MOVES,
    TOGETHER,
    Costs,
    Cut,
    Form,
    Mesh,
    Rule,
    Step,
    cut_of,
    dims_of,
    local,
    owned,
    rule_of,
    whole,
)

WIDTH = 12  # plans kept after each op
INNER = 4  # the same inside an op that is taken apart
WAYS = 48  # of computing an op that are weighed
RESULTS = 3  # plans of a function that are offered to its callers
ROOM = 6.0
"""What holding a weight of median size costs, in latencies of an all_reduce over the mesh: a mesh is there to share
weights, so small ones are shared, too, when that takes a few collectives."""
BETWEEN = 10.0  # latencies: what is laid otherwise between two calls is a launch of its own, and could be done inside
ANOTHER = 1.0  # seconds: a function in two variants is compiled twice
PRODUCTS = CONTRACTIONS | {"tensor.gather"}
"""Ops whose weights are worth cutting by themselves."""


class Spec(NamedTuple):
    """How an argument comes: in a form (`fixed`), in one that the function chooses (`open`), or in any that it asks for
    (`weight`)."""

    kind: str
    form: Form | None = None


@dataclass(frozen=True, eq=False)
class Choice:
    """A way to compute an op: the forms of its operands and results, and the seconds of its work."""

    label: str
    wants: tuple[Form | None, ...]
    gives: tuple[Form, ...]
    seconds: float
    cuts: tuple[tuple[int, Cut], ...] = ()
    """Dims of the op and how they are cut."""
    scale: float = 1.0
    """What the result is multiplied by: one over the number of blocks of which a mean is taken."""
    inner: tuple[tuple[Operation, Choice], ...] = ()
    """The ops that stand for one that is taken apart."""
    value: SSAValue | None = None
    """What they make."""
    masks: tuple[Form, ...] = ()
    """The forms of results before zeros are made of what a socket does not own; empty when that is not done."""
    owners: int = -1
    """Number of the owners of what is taken from weights of experts, -1 where nothing is."""
    taken: tuple[tuple[int, Form], ...] = ()
    """Arguments that they ask for, by id, and in which form."""
    plan: Plan | None = None
    """Of a called function."""


Trace = tuple[Any, Operation, Choice, tuple[Candidate, ...]]


@dataclass(frozen=True, eq=False)
class Plan:
    """A function on one socket: the form of each argument (None: those of `weights`) and result, and how each op is
    computed."""

    func: FuncOp
    number: int
    args: tuple[Form | None, ...]
    weights: tuple[tuple[int, Form], ...]
    gives: tuple[Form, ...]
    seconds: float
    steps: tuple[tuple[Operation, Choice, tuple[Candidate, ...]], ...]


class Owners(NamedTuple):
    """Which socket has what belongs to an index: the one that has the block of experts that the index is in."""

    indices: SSAValue
    experts: int
    cut: Cut


class Kept(NamedTuple):
    """What an op leaves to be combined behind it: along which parts, and the kinds of operands that it leaves so and of
    results."""

    parts: Cut
    operands: dict[int, str]
    results: tuple[str, ...]


class _State:
    """A plan up to an op: the forms in which live values are there."""

    __slots__ = ("forms", "mark", "opened", "owed", "seconds", "taken", "trace", "variants")

    def __init__(self) -> None:
        self.forms: dict[int, tuple[Form, ...]] = {}
        self.opened: dict[int, Form] = {}
        self.taken: dict[tuple[int, Form], None] = {}
        self.variants: frozenset[tuple[str, int]] = frozenset()
        self.seconds = 0.0
        self.owed = 0.0
        """About what it takes to combine what is still to be combined."""
        self.mark = 0
        """Equal for plans that have the same forms: what follows is the same."""
        self.trace: Trace | None = None

    def copy(self) -> _State:
        new = _State()
        new.forms, new.opened, new.taken = self.forms.copy(), self.opened.copy(), self.taken.copy()
        new.variants, new.seconds, new.trace = self.variants, self.seconds, self.trace
        new.owed, new.mark = self.owed, self.mark
        return new

    def put(self, value: int, forms: tuple[Form, ...]) -> None:
        """Note the forms of a value."""
        self.drop(value)
        self.forms[value] = forms
        self.mark ^= hash((value, forms))

    def drop(self, value: int) -> None:
        """Forget a value."""
        forms = self.forms.pop(value, None)
        if forms is not None:
            self.mark ^= hash((value, forms))

    def open(self, value: int, form: Form) -> None:
        """Settle the form of an argument."""
        self.put(value, (form,))
        self.opened[value] = form
        self.mark ^= hash((value, form))


class Info(NamedTuple):
    """What an op is, without how it is computed."""

    attrs: dict[str, Any]
    operands: tuple[TT, ...]
    results: tuple[TT, ...]
    rule: Rule


def info(op: Operation) -> Info:
    """Attributes, types and rule of an op."""
    attrs = attributes_of(op)
    taken, made = tuple(tt(x) for x in operands(op)), tuple(tt(x) for x in op.results)
    return Info(attrs, taken, made, rule_of(op.name, attrs, taken, made))


@dataclass
class Scope:
    """The values of a block that are made in the form that is asked for, and when each value is last used."""

    lazy: MutableMapping[int, Operation | None]
    """By id of the value: the op that makes it; None for an argument."""
    open: frozenset[int]
    """Arguments of which there is one form."""
    median: float
    """Bytes of a weight of a product."""
    dead: list[list[int]] = field(default_factory=list[list[int]])
    """Per op the values that nobody uses after it."""


def lazy_values(ops: Sequence[Operation], arguments: Mapping[int, Operation | None]) -> dict[int, Operation | None]:
    """What is made of weights, constants and such arguments alone, products left out."""
    found: dict[int, Operation | None] = {}
    for op in ops:
        if not op.name.startswith("tensor.") or len(op.results) != 1 or op.name in PRODUCTS:
            continue
        if all(id(x) in found or id(x) in arguments for x in operands(op)):
            found[id(op.results[0])] = op
    return found


def backward(about: Info, mesh: Mesh, want: Form) -> tuple[Form, ...] | None:
    """The forms of operands that give a result of one form without more ado; None when none do."""
    cuts = dims_of(about.rule.results[0], about.results[0], mesh, want)
    if cut_of(about.rule, about.rule.results[0], about.results[0], mesh, cuts) != want.cuts:
        return None
    found = [
        cut_of(about.rule, places, type, mesh, cuts)
        for places, type in zip(about.rule.operands, about.operands, strict=True)
    ]
    return None if None in found else tuple(Form(x) for x in found if x is not None)


class Planner:
    """Plans functions on a mesh."""

    def __init__(self, mesh: Mesh, costs: Costs, functions: Mapping[str, FuncOp]) -> None:
        self.mesh = mesh
        self.costs = costs
        self.functions = functions
        self.made: dict[tuple[int, tuple[Spec, ...]], list[Plan]] = {}
        self.known: dict[int, dict[tuple[Spec, ...], float]] = {}
        """Ways in which arguments of a function came, and the seconds that it takes then."""
        self.owners: dict[int, Owners] = {}
        """By their number."""
        self._owners: dict[tuple[int, int, Cut], int] = {}
        self.scratch: list[Operation] = []
        """Ops that stand for others: in no block."""
        self._info: dict[int, Info] = {}
        self._parts: dict[int, tuple[list[Operation], SSAValue] | None] = {}
        self._ways: dict[Any, list[Choice]] = {}
        self._calls: dict[int, int] = {}
        self._sums: dict[tuple[int, Form], float] = {}

    @cached_property
    def batch(self) -> frozenset[int]:
        """The parts of axes that cut batches."""
        return frozenset(self.mesh.of("dp"))

    def info(self, op: Operation) -> Info:
        """Attributes, types and rule of an op, found once."""
        found = self._info.get(id(op))
        if found is None:
            found = self._info[id(op)] = info(op)
        return found

    # Functions

    def plan(
        self, func: FuncOp, specs: tuple[Spec, ...], finish: Callable[[_State], Sequence[Form | None]] | None = None
    ) -> list[Plan]:
        """The best ways to compute a function whose arguments come so, the best first. `finish` says in which forms its
        results are to be (None: as they are)."""
        key = id(func), specs
        if key not in self.made:
            before = len(self.made)
            found = self._plan(func, specs, finish)
            if len(self.made) > before:  # calls in the ways that have come up behind them
                found = self._plan(func, specs, finish)
            self.made[key] = found
            self.known.setdefault(id(func), {})[specs] = found[0].seconds
        return self.made[key]

    def _plan(
        self, func: FuncOp, specs: tuple[Spec, ...], finish: Callable[[_State], Sequence[Form | None]] | None
    ) -> list[Plan]:
        block = func.body.block
        ops = list(block.ops)
        scope = self._scope(block, ops, specs)
        state = _State()
        for arg, spec in zip(block.args, specs, strict=True):
            if spec.form is not None:
                state.put(id(arg), (spec.form,))
        states = [state]
        for number, op in enumerate(ops):
            if len(op.results) == 1 and id(op.results[0]) in scope.lazy:
                continue
            if isinstance(op, ReturnOp):
                states = self._returns(scope, states, op, finish)
            else:
                states = self._expand(scope, states, op, scope.dead[number], WIDTH)
        found: list[Plan] = []
        numbers = {id(arg): i for i, arg in enumerate(block.args)}
        for at in states[:RESULTS]:
            steps = _steps_of(at.trace)
            (_, last, _) = steps[-1]
            args = tuple(
                spec.form
                if spec.form is not None
                else at.opened.get(id(arg), whole(len(tt(arg).shape)))
                if spec.kind == "open"
                else None
                for arg, spec in zip(block.args, specs, strict=True)
            )
            weights = tuple((numbers[value], form) for value, form in at.taken)
            number = self._calls.setdefault(id(func), 0)
            self._calls[id(func)] += 1
            found.append(Plan(func, number, args, weights, tuple(f for f in last.wants if f), at.seconds, steps))
        return found

    def _scope(self, block: Block, ops: Sequence[Operation], specs: Sequence[Spec]) -> Scope:
        free: dict[int, Operation | None] = {
            id(arg): None for arg, spec in zip(block.args, specs, strict=True) if spec.form is None
        }
        opened = frozenset(id(arg) for arg, spec in zip(block.args, specs, strict=True) if spec.kind == "open")
        lazy = {**free, **lazy_values(ops, free)}
        sizes = [
            type.elements * dtypes.byte_size(type.dtype)
            for op in ops
            if op.name in PRODUCTS
            for x, type in zip(operands(op), self.info(op).operands, strict=True)
            if id(x) in lazy and (op.name in CONTRACTIONS or len(type.shape) > 2)  # a table of rows is no product's
        ]
        last: dict[int, int] = {}
        for number, op in enumerate(ops):
            for value in (*operands(op), *op.results):
                last[id(value)] = number
        dead: list[list[int]] = [[] for _ in ops]
        for value, number in last.items():
            dead[number].append(value)
        return Scope(lazy, opened, median(sizes) if sizes else 0.0, dead)

    # Values

    def obtain(self, scope: Scope, state: _State, value: SSAValue, want: Form, share: float = 1.0) -> Cut | None:
        """Have a value in a form, at a cost; along which parts it was joined for that, None when it cannot be had.
        `share` is how much of a weight is read; 0 counts no cost at all."""
        key = id(value)
        have = state.forms.get(key)
        type = tt(value)
        if have is not None:
            if want in have:
                return ()
            (seconds, gathered), _ = min(
                ((self.costs.lay(type, form, want), number) for number, form in enumerate(have)),
                key=lambda x: (x[0][0], x[1]),
            )
            if seconds == float("inf"):
                return None
            state.seconds += seconds
            self._put(state, value, (*have, want))
            return gathered
        op = scope.lazy[key]
        if op is None or type_of(op) is WeightOp:
            if op is None:
                if key in scope.open:
                    state.open(key, want)
                else:
                    state.taken[key, want] = None
            if share:
                state.seconds += self._weight(scope, local(self.mesh, type, want), share)
            return ()
        if not operands(op):
            return ()
        about = self.info(op)
        wants = backward(about, self.mesh, want)
        if wants is None:
            wants = tuple(whole(len(x.shape)) for x in about.operands)
        gathered: Cut = ()
        for x, form in zip(operands(op), wants, strict=True):
            more = self.obtain(scope, state, x, form, share)
            if more is None:
                return None
            gathered += more
        return gathered

    def _weight(self, scope: Scope, block: TT, share: float) -> float:
        nbytes = block.elements * dtypes.byte_size(block.dtype)
        room = ROOM * self.costs.latency * nbytes / scope.median if scope.median else 0.0
        return share * nbytes / self.costs.bandwidth + room

    # Ops

    def _expand(
        self, scope: Scope, states: Sequence[_State], op: Operation, dead: Sequence[int], width: int
    ) -> list[_State]:
        """The plans that go on from these by one op."""
        found: dict[Any, _State] = {}
        for state in states:
            choices = self._call(scope, state, op) if isinstance(op, CallOp) else self.ways(scope, state, op)
            tried = [
                (taken, choice) for choice in choices if (taken := self._take(scope, state, op, choice)) is not None
            ]
            kept = [(new, choice) for (new, lost), choice in tried if not lost]
            kept = kept or [(new, choice) for (new, _), choice in tried]
            for new, _ in kept:
                for value in dead:
                    if value not in scope.open:  # what is made of it may be asked for later
                        self._drop(new, value)
            candidates = _candidates(state, kept) if len(kept) > 1 and op.name in PRODUCTS else ()
            for new, choice in kept:
                new.trace = (state.trace, op, choice, candidates)
                key = new.mark, new.variants
                best = found.get(key)
                if best is None or new.seconds < best.seconds:
                    found[key] = new
        return sorted(found.values(), key=lambda x: x.seconds + x.owed)[:width]

    def _put(self, state: _State, value: SSAValue, forms: tuple[Form, ...]) -> None:
        """Note the forms of a value, and what is owed for it."""
        self._drop(state, id(value))
        state.put(id(value), forms)
        if len(forms) == 1 and forms[0].partial and not forms[0].owned:
            state.owed += self._combining(value, forms[0])

    def _drop(self, state: _State, value: int) -> None:
        forms = state.forms.get(value)
        if forms is not None:
            if len(forms) == 1 and forms[0].partial and not forms[0].owned:
                state.owed -= self._sums[value, forms[0]]
            state.drop(value)

    def _combining(self, value: SSAValue, form: Form) -> float:
        found = self._sums.get((id(value), form))
        if found is None:
            block = local(self.mesh, tt(value), form)
            found = self._sums[id(value), form] = self.costs.step(Step("reduce_scatter", form.partial, 0), block)
        return found

    def _take(self, scope: Scope, state: _State, op: Operation, choice: Choice) -> tuple[_State, bool] | None:
        """The plan with an op computed in a way, and whether a batch was joined for it; None when it cannot be."""
        new = state.copy()
        lost = False
        share = 1.0
        if op.name == "tensor.gather":
            share = min(1.0, self.info(op).results[0].elements / max(1, self.info(op).operands[0].elements))
        for value, want in zip(operands(op), choice.wants, strict=True) if choice.wants else ():
            if want is not None:
                before = new.seconds
                gathered = self.obtain(scope, new, value, want, 0.0 if choice.plan else share)
                if gathered is None:
                    return None
                if choice.plan and new.seconds > before and isinstance(value.owner, CallOp):
                    new.seconds += BETWEEN * self.costs.latency
                lost |= not self.batch.isdisjoint(gathered)
        if choice.plan is not None:
            for number, form in choice.plan.weights:
                if self.obtain(scope, new, operands(op)[number], form, 0.0) is None:
                    return None
            mine = choice.plan.func.sym_name.data, choice.plan.number
            if mine not in new.variants:
                new.seconds += ANOTHER if any(name == mine[0] for name, _ in new.variants) else 0.0
                new.variants |= {mine}
        new.taken.update(dict.fromkeys(choice.taken))
        new.seconds += choice.seconds
        for result, form in zip(op.results, choice.gives, strict=True):
            self._put(new, result, (form,))
        return new, lost

    def ways(self, scope: Scope, state: _State, op: Operation) -> list[Choice]:
        """The ways to compute an op, given the forms in which its operands are there."""
        haves = tuple(state.forms.get(id(x)) for x in operands(op))
        key = id(op), haves, scope.median
        found = self._ways.get(key)
        if found is None:
            found = self._ways[key] = self._find(scope, op, haves)
        return found

    def _find(self, scope: Scope, op: Operation, haves: tuple[tuple[Form, ...] | None, ...]) -> list[Choice]:
        about = self.info(op)
        found: dict[Any, Choice] = {}
        for kept in self._kept(op, about, haves):
            for cuts in self._assignments(op, about, haves, kept[0] if kept else ()):
                choice = self._choice(op, about, haves, cuts, kept)
                if choice is not None:
                    found.setdefault((choice.wants, choice.gives), choice)
                    if (owning := self._owning(op, about, haves, choice)) is not None:
                        found.setdefault((owning.wants, owning.gives), owning)
                if len(found) >= WAYS:
                    break
        return [*found.values(), *self._apart(scope, op, about, haves)]

    def _kept(self, op: Operation, about: Info, haves: tuple[tuple[Form, ...] | None, ...]) -> list[Kept | None]:
        """What operands may leave to be combined behind the op; None for nothing."""
        partial = {i: next((f for f in forms if f.partial), None) for i, forms in enumerate(haves) if forms is not None}
        given = {i: form for i, form in partial.items() if form is not None}
        if not given:
            return [None]
        found: list[Kept | None] = []
        owners = {(form.partial, form.owned and form.owned[1]) for form in given.values()}
        if len(owners) == 1 and all(form.owned for form in given.values()):
            kept = _kept_owned(about.rule, given)
            found += [kept] if kept is not None else []
        given = {i: form._replace(kind="add") if form.owned else form for i, form in given.items()}
        forms = {(form.partial, form.kind) for form in given.values()}
        parts, kind = next(iter(forms))
        if kind != "add" and not (op.name in MOVES and len(haves) == 1):
            return [*found, None]
        if op.name in TOGETHER and len(forms) == 1 and len(given) == len(haves):
            found.append(Kept(parts, dict.fromkeys(given, kind), (kind,)))
        for i, form in given.items():
            unlike = op.name == "tensor.conv" and len(haves) > 2  # each socket would add the bias
            unlike |= op.name in DIVIDING and not dtypes.is_float(about.operands[i].dtype)
            if i in LINEAR.get(op.name, ()) and operands(op).count(operands(op)[i]) == 1 and not unlike:
                found.append(Kept(form.partial, {i: form.kind}, (form.kind,) * len(about.results)))
        return [*found, None]

    def _owning(
        self, op: Operation, about: Info, haves: tuple[tuple[Form, ...] | None, ...], choice: Choice
    ) -> Choice | None:
        """A way to take from weights of experts where each socket of `ep` has some of them: it takes from its own."""
        experts = self.mesh.of("ep")
        taken = {
            x for form in (*choice.wants, *choice.gives) if form for cut in (*form.cuts, form.partial) for x in cut
        }
        if op.name != "tensor.gather" or haves[0] is not None or not experts or not taken.isdisjoint(experts):
            return None
        data, indices = about.operands
        axis: int = about.attrs["axis"] % max(1, len(data.shape))
        if len(data.shape) < 3 or len(indices.shape) != 1 or data.shape[axis] % self.mesh.size(experts):
            return None
        table, index = choice.wants
        (result,) = choice.gives
        if table is None or index is None or result.partial or index.partial:
            return None
        chosen = (id(operands(op)[1]), data.shape[axis], experts)
        number = self._owners.setdefault(chosen, len(self._owners))
        self.owners[number] = Owners(operands(op)[1], data.shape[axis], experts)
        cuts = (*table.cuts[:axis], experts, *table.cuts[axis + 1 :])
        return replace(
            choice,
            label=" and ".join(["experts over " + self.mesh.text(experts), *([choice.label] if choice.cuts else [])]),
            wants=(Form(cuts), index),
            gives=(Form(result.cuts, experts, owned(axis, number)),),
            owners=number,
        )

    def _assignments(
        self, op: Operation, about: Info, haves: tuple[tuple[Form, ...] | None, ...], kept: Cut
    ) -> list[dict[int, Cut]]:
        """Ways to cut the dims of an op."""
        options: dict[int, dict[Cut, None]] = {}
        for forms, places, type in zip(haves, about.rule.operands, about.operands, strict=True):
            for form in forms or ():
                for number, cut in dims_of(places, type, self.mesh, form).items():
                    cut = self._fitting(about, number, cut)
                    if cut:
                        options.setdefault(number, {})[cut] = None
        numbers = list(options)
        found: dict[Any, dict[int, Cut]] = {}
        for combination in product(*([*options[n], ()] for n in numbers)):
            taken = [x for cut in combination for x in cut]
            if len({*taken, *kept}) == len(taken) + len(kept):
                cuts = {n: cut for n, cut in zip(numbers, combination, strict=True) if cut}
                found[tuple(sorted(cuts.items()))] = cuts
        if op.name in PRODUCTS:
            for cuts in list(found.values()):
                for seeded in self._seeds(op, about, haves, cuts, kept):
                    found.setdefault(tuple(sorted(seeded.items())), seeded)
        return list(found.values())

    def _fitting(self, about: Info, number: int, cut: Cut) -> Cut:
        """As much of a cut as a dim of an op takes in all operands and results."""
        while cut and not self._fits(about, {number: cut}):
            cut = cut[:-1]
        return cut

    def _fits(self, about: Info, cuts: Mapping[int, Cut]) -> bool:
        rule, mesh = about.rule, self.mesh
        return all(
            cut_of(rule, places, type, mesh, cuts) is not None
            for places, type in (
                *zip(rule.operands, about.operands, strict=True),
                *zip(rule.results, about.results, strict=True),
            )
        )

    def _seeds(
        self, op: Operation, about: Info, haves: tuple[tuple[Form, ...] | None, ...], cuts: dict[int, Cut], kept: Cut
    ) -> list[dict[int, Cut]]:
        """Cuts of dims of weights along parts of the mesh that are still free: those of `ep` cut dims of many products
        side by side, those of `tp` any."""
        weights = {
            number
            for have, places in zip(haves, about.rule.operands, strict=True)
            if have is None and (op.name in CONTRACTIONS or places is about.rule.operands[0])
            for number, place in enumerate(places)
            if place
        }
        order = sorted(weights, key=lambda n: (about.rule.dims[n].outer, bool(about.rule.dims[n].reduce)))
        found = [cuts]
        for axis in ("ep", "tp"):
            dims = [n for n in order if about.rule.dims[n].outer or axis == "tp"]
            for base in list(found):
                taken = {*kept, *(x for cut in base.values() for x in cut)}
                free = tuple(x for x in self.mesh.of(axis) if x not in taken)
                for number in dims:
                    for length in range(len(free), 0, -1):
                        cut = (*base.get(number, ()), *free[:length])
                        if self._fits(about, {number: cut}):
                            found.append({**base, number: cut})
        return found[1:]

    def _choice(
        self,
        op: Operation,
        about: Info,
        haves: tuple[tuple[Form, ...] | None, ...],
        cuts: dict[int, Cut],
        kept: Kept | None,
    ) -> Choice | None:
        rule, mesh = about.rule, self.mesh
        parts, keeping, kinds = kept or Kept((), {}, ())
        masks: tuple[str, ...] = ()
        wants: list[Form] = []
        for i, (places, type) in enumerate(zip(rule.operands, about.operands, strict=True)):
            cut = cut_of(rule, places, type, mesh, cuts)
            if cut is None:
                return None
            wants.append(Form(cut, parts, keeping[i]) if i in keeping else Form(cut))
        reduced = tuple(x for n, cut in cuts.items() if rule.dims[n].reduce for x in cut)
        if reduced:
            combined = {rule.dims[n].reduce for n, cut in cuts.items() if cut and rule.dims[n].reduce}
            if all(kind.startswith("own") for kind in kinds) and combined == {"add"}:
                masks, kinds = kinds, ()  # what a socket does not own is none of the sum
            if len(combined) > 1 or (kinds and combined != {*kinds}):
                return None
            kinds = tuple(combined) * len(rule.results)
        gives: list[Form] = []
        own: list[Form] = []
        left = (*parts, *reduced)
        for number, (places, type) in enumerate(zip(rule.results, about.results, strict=True)):
            cut = cut_of(rule, places, type, mesh, cuts)
            if cut is None:
                return None
            gives.append(Form(cut, left, kinds[number]) if left else Form(cut))
            own += [Form(cut, parts, masks[number])] if masks else []
        shared = mesh.size(x for cut in cuts.values() for x in cut)
        seconds = self.costs.work(op.name, about.attrs, about.operands, about.results) / shared
        scale = 1 / mesh.size(reduced) if rule.mean and reduced else 1.0
        items = tuple(sorted(cuts.items()))
        return Choice(
            self._label(op, about, items), tuple(wants), tuple(gives), seconds, items, scale, masks=tuple(own)
        )

    def _label(self, op: Operation, about: Info, cuts: tuple[tuple[int, Cut], ...]) -> str:
        """A way for people."""
        names: list[str] = []
        for number, cut in cuts:
            dim = about.rule.dims[number]
            place = about.rule.results[0][number]
            what = f"dim {place[0]}" if place else "the summed dim" if dim.reduce == "add" else "the reduced dim"
            names.append(f"{what} over {self.mesh.text(cut)}")
        return " and ".join(names) or "whole on every socket"

    # Ops that are taken apart

    def _apart(
        self, scope: Scope, op: Operation, about: Info, haves: tuple[tuple[Form, ...] | None, ...]
    ) -> list[Choice]:
        """The ways to compute an op by its parts, where an operand is cut along a dim that the op needs whole."""
        if not any(self._coupled(about, i, form) for i, forms in enumerate(haves) for form in forms or ()):
            return []
        parts = self._parts_of(op)
        if parts is None or any(
            have is None and self._is_open(scope, x) for x, have in zip(operands(op), haves, strict=True)
        ):
            return []
        ops, value = parts
        state = _State()
        for x, forms in zip(operands(op), haves, strict=True):
            if forms is not None:
                self._put(state, x, forms)
        inner = Scope(ChainMap(lazy_values(ops, scope.lazy), scope.lazy), scope.open, scope.median)
        states = [state]
        for one in ops:
            if id(one.results[0]) not in inner.lazy:
                states = self._expand(inner, states, one, (), INNER)
        found: list[Choice] = []
        for at in states:
            steps = tuple((one, choice) for one, choice, _ in _steps_of(at.trace))
            form = at.forms[id(value)][0]
            if not form.partial and form not in [choice.gives[0] for choice in found]:
                found.append(
                    Choice("by its parts", (), (form,), at.seconds, inner=steps, value=value, taken=tuple(at.taken))
                )
        return found

    def _coupled(self, about: Info, i: int, form: Form) -> bool:
        places, type = about.rule.operands[i], about.operands[i]
        cuts = dims_of(places, type, self.mesh, form)
        return cut_of(about.rule, places, type, self.mesh, cuts) != form.cuts

    def _is_open(self, scope: Scope, value: SSAValue) -> bool:
        """Whether asking for a value may settle the form of an argument."""
        op = scope.lazy[id(value)]
        return id(value) in scope.open if op is None else any(self._is_open(scope, x) for x in operands(op))

    def _parts_of(self, op: Operation) -> tuple[list[Operation], SSAValue] | None:
        if id(op) not in self._parts:
            ops: list[Operation] = []
            values = decompositions.decompose(op, ops.append)
            self.scratch += ops
            self._parts[id(op)] = (ops, values[0]) if values is not None else None
        return self._parts[id(op)]

    # Calls and returns

    def _call(self, scope: Scope, state: _State, op: CallOp) -> list[Choice]:
        """The ways to call a function: with values as they are, or with all that is cut along weights joined."""
        func = self.functions[op.callee.string_value()]
        rows: list[tuple[Spec, Spec]] = []
        for value in operands(op):
            have = state.forms.get(id(value))
            if have is None:
                kind = Spec("open") if id(value) in scope.open else Spec("weight")
                rows.append((kind, kind))
                continue
            form = next((f for f in reversed(have) if not f.partial), have[0].resolved)
            joined = Form(tuple(tuple(x for x in cut if x in self.batch) for cut in form.cuts))
            rows.append((Spec("fixed", form), Spec("fixed", joined)))
        found: list[Choice] = []
        ways = dict.fromkeys(zip(*rows, strict=True)) if rows else {(): None}
        kinds = [spec.kind for spec, _ in rows]
        known = self.known.get(id(func), {})
        others = [specs for specs in known if [x.kind for x in specs] == kinds]
        ways |= dict.fromkeys(sorted(others, key=lambda x: known[x])[:RESULTS])
        for specs in ways:
            for plan in self.plan(func, tuple(specs)):
                found.append(Choice(f"@{func.sym_name.data}", plan.args, plan.gives, plan.seconds, plan=plan))
        return found

    def _returns(
        self,
        scope: Scope,
        states: Sequence[_State],
        op: ReturnOp,
        finish: Callable[[_State], Sequence[Form | None]] | None,
    ) -> list[_State]:
        found: dict[Any, _State] = {}
        for state in states:
            new = state.copy()
            asked = finish(new) if finish else [None] * len(op.operands)
            gives: list[Form] = []
            for value, form in zip(operands(op), asked, strict=True):
                want = form
                if want is None:
                    have = new.forms.get(id(value), (whole(len(tt(value).shape)),))
                    want = next((f for f in reversed(have) if not f.partial), have[0])
                    want = want.resolved if finish or want.owned else want
                if self.obtain(scope, new, value, want) is None:
                    break
                gives.append(want)
            else:
                new.trace = (state.trace, op, Choice("", tuple(gives), (), 0.0), ())
                key = tuple(gives), tuple(new.opened.items()), new.variants
                if key not in found or new.seconds < found[key].seconds:
                    found[key] = new
        return sorted(found.values(), key=lambda x: x.seconds)


def _kept_owned(rule: Rule, given: Mapping[int, Form]) -> Kept | None:
    """An op on operands of which each index of a dim has an owner, the same in all: so it is in the results, when the
    op treats each index by itself."""
    numbers: set[int] = set()
    owners, parts = 0, ()
    for i, form in given.items():
        dim, owners = form.owned or (0, 0)
        parts = form.partial
        mine = [n for n, place in enumerate(rule.operands[i]) if place == (dim,) and not rule.dims[n].reduce]
        numbers |= {*mine} or {-1}
    number = numbers.pop() if len(numbers) == 1 else -1
    if number < 0 or any(len(places[number]) != 1 for places in rule.results):
        return None
    kinds = tuple(owned(places[number][0], owners) for places in rule.results)
    return Kept(parts, {i: form.kind for i, form in given.items()}, kinds)


def type_of(op: Operation) -> type[Operation]:
    """The class of an op."""
    return type(op)


def _candidates(state: _State, kept: Sequence[tuple[_State, Choice]]) -> tuple[Candidate, ...]:
    """What was weighed at an op, with the cost of the op and of combining what it leaves."""
    before = state.seconds + state.owed
    return tuple(Candidate(choice.label, new.seconds + new.owed - before) for new, choice in kept)


def _steps_of(trace: Trace | None) -> tuple[tuple[Operation, Choice, tuple[Candidate, ...]], ...]:
    found: list[tuple[Operation, Choice, tuple[Candidate, ...]]] = []
    while trace is not None:
        trace, op, choice, candidates = trace
        found.append((op, choice, candidates))
    return tuple(reversed(found))
