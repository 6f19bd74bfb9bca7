"""What became of some nodes of a model, pass by pass, and why: what `headrace why` and `headrace-opt --why` print.

follow = Follow(module, "/encoder/gelu")
with recording(follow.journal):
    PassManager(ctx, passes, Watch(check=follow.after)).run(module)
print(follow.text())
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects.builtin import LocationAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, Operation
from xdsl.passes import ModulePass

from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.journal import Decision, Declined, Journal, Rewrite
from headrace.dialects.tensor.canonicalization import rules
from headrace.passes.analysis.chains import anchors, sought

SHOWN = 6
"""Ops, candidates and places that a line lists."""
MERGED_MOST = 24
"""Nodes of an op that is one of the model's rather than a whole section."""
ENDS = frozenset({"func.return", "dataflow.yield", "rdu.yield", "tensor.yield"})
"""Ops that stand for nothing."""


@dataclass(frozen=True)
class Op:
    """An op that stands for one of the nodes: its name, type and model location, and the ops that hold it."""

    name: str
    title: str
    type: str
    where: str
    location: str
    nodes: frozenset[str]

    def __str__(self) -> str:
        return f"{self.name} {self.title}".rstrip()


@dataclass
class Turn:
    """One run of one pass: what it did with the nodes, and the ops that stand for them afterwards."""

    number: int
    pass_name: str
    applied: dict[Rewrite, int] = field(default_factory=dict[Rewrite, int])
    declined: dict[Declined, int] = field(default_factory=dict[Declined, int])
    decisions: list[Decision] = field(default_factory=list[Decision])
    unmatched: tuple[str, ...] = ()
    """Patterns that were tried and are about other ops."""
    before: tuple[Op, ...] = ()
    ops: tuple[Op, ...] = ()

    @property
    def says_anything(self) -> bool:
        """Whether the pass did something with the nodes, or said why not."""
        return bool(self.applied or self.declined or self.decisions or self.changed)

    @property
    def near(self) -> frozenset[str]:
        """The nodes that the followed ones were merged with: what was done there was done with these."""
        old = {(op.name, op.location) for op in self.before}
        new = [op.nodes for op in self.ops if (op.name, op.location) not in old and len(op.nodes) <= MERGED_MOST]
        return frozenset[str]().union(*new)

    @property
    def changed(self) -> bool:
        """Whether other kinds of ops stand for the nodes now."""
        return _kinds(self.before) != _kinds(self.ops)


class Follow:
    """Follows the nodes that `wanted` names through the passes. It has the journal that has to be on meanwhile."""

    def __init__(self, module: ModuleOp, wanted: str, journal: Journal | None = None) -> None:
        self.wanted = wanted
        self.journal = journal if journal is not None else Journal()
        self._names = _Names()
        self.nodes = self._resolve(module, wanted)
        """The nodes, in the model's order."""
        self._wanted = frozenset(self.nodes)
        self.start = self.ops(module)
        self.turns: list[Turn] = []
        self.phases: list[tuple[str, tuple[Op, ...], int]] = []
        """Name of a phase, the ops at its end, and how many turns there were then."""
        self._seen = len(self.journal.applied), dict(self.journal.declined), len(self.journal.decisions)

    # -- which nodes ---------------------------------------------------------------------------------------------

    def _resolve(self, module: ModuleOp, wanted: str) -> tuple[str, ...]:
        """The nodes that a text names: a node, all below a path, those of a value `%x`, those of ops of a kind (of a
        composite, the ops at which it is looked for), those that have the text in their name. `CompileError` when there
        are none."""
        by_node: dict[str, None] = {}
        by_kind: dict[str, dict[str, None]] = {}
        by_value: dict[str, dict[str, None]] = {}
        for op in module.walk():
            found = self._names(op.location)
            if op is module or op.name in ENDS:
                continue
            if not op.regions:
                by_node.update(dict.fromkeys(found))
                by_kind.setdefault(op.name, {}).update(dict.fromkeys(found))
            for result in op.results:
                if result.name_hint:
                    by_value.setdefault(f"%{result.name_hint}", {}).update(dict.fromkeys(found))
        if wanted in by_node:
            return (wanted,)
        if wanted in by_value:
            return tuple(by_value[wanted])
        below = [node for node in by_node if node.startswith((f"{wanted}/", f"{wanted}:"))]
        if below:
            return tuple(below)
        composites = {name: sought(name).split(" or ") for name in anchors() if name in by_kind}
        looked_for = [name for name, found in composites.items() if wanted.removeprefix("tensor.") in found]
        for kinds in ([wanted, f"tensor.{wanted}"], looked_for):
            kind = {node: None for name in kinds for node in by_kind.get(name, ())}
            if kind:
                return tuple(kind)
        inside = [node for node in by_node if wanted.lower() in node.lower()]
        if wanted and inside:
            return tuple(inside)
        known = [*by_node, *by_value, *by_kind, *(kind.removeprefix("tensor.") for kind in by_kind)]
        known += [name for found in composites.values() for name in found]
        raise CompileError("no-such-op", f"the model has no op '{wanted}'", fix=_hint(wanted, known, len(by_node)))

    def concerns(self, location: Attribute) -> bool:
        """Whether a location is one of the nodes, or of something that stands for one."""
        return not self._wanted.isdisjoint(self._names(location))

    def _mentioned(self, reason: str) -> bool:
        """Whether a reason names one of the nodes."""
        _, at, rest = reason.partition(" at ")
        return bool(at) and any(re.search(rf" at {re.escape(node)}\b", at + rest) for node in self.nodes if node)

    def ops(self, module: ModuleOp) -> tuple[Op, ...]:
        """The ops of a module that stand for the nodes; of an op and ops inside of it, those inside."""
        found: list[Op] = []
        for top in module.body.block.ops:
            self._collect(top, "", found)
        return tuple(found)

    def _collect(self, op: Operation, around: str, found: list[Op]) -> bool:
        before = len(found)
        if op.regions:
            inside = f"{_named(op)} of {around}" if around else _named(op)
            for region in op.regions:
                for block in region.blocks:
                    for inner in block.ops:
                        self._collect(inner, inside, found)
        mine = len(found) == before and op.name not in ENDS and self.concerns(op.location)
        if mine and op.name not in ("func.func", "rdu.program"):
            types = [str(type) for result in op.results if (type := result.type).name == "tensor"]
            found.append(
                Op(
                    op.name,
                    _title(op),
                    types[0] if types else "",
                    around,
                    locations.text(op.location),
                    frozenset(self._names(op.location)),
                )
            )
        return mine

    # -- following -----------------------------------------------------------------------------------------------

    def after(self, one: ModulePass, module: ModuleOp) -> None:
        """To be called after each pass."""
        self._take(one.name, self.ops(module))

    def phase(self, name: str, module: ModuleOp) -> None:
        """To be called after each phase."""
        self.phases.append((name, self.ops(module), len(self.turns)))

    def failed(self, name: str) -> None:
        """To be called when pass `name` raised: what it did until then counts."""
        self._take(name, self._last)

    @property
    def _last(self) -> tuple[Op, ...]:
        return self.turns[-1].ops if self.turns else self.start

    def _take(self, name: str, ops: tuple[Op, ...]) -> None:
        journal = self.journal
        made, declined, decided = self._seen
        turn = Turn(len(self.turns) + 1, name, before=self._last, ops=ops)
        near = turn.near
        for rewrite in journal.applied[made:]:
            if self.concerns(rewrite.location) or not near.isdisjoint(self._names(rewrite.location)):
                turn.applied[rewrite] = turn.applied.get(rewrite, 0) + 1
        for refusal, times in journal.declined.items():
            more = times - declined.get(refusal, 0)
            if more and (self.concerns(refusal.location) or self._mentioned(refusal.reason)):
                turn.declined[refusal] = more
        turn.decisions = [one for one in journal.decisions[decided:] if self.concerns(one.location)]
        if name == "canonicalize":
            tried = {type(rule.pattern).__name__ for op in _kinds(turn.before) for rule in rules(op)}
            turn.unmatched = tuple(sorted(tried - {one.pattern for one in (*turn.applied, *turn.declined)}))
        self.turns.append(turn)
        self._seen = len(journal.applied), dict(journal.declined), len(journal.decisions)

    # -- telling -------------------------------------------------------------------------------------------------

    def text(self, only: str | None = None) -> str:
        """The story for people; of one pass when `only` names it."""
        lines = [
            f"{self.wanted}: {_few(self.nodes)}",
            f"  {'before all passes':{WIDTH}}  {_summary(self.start)}",
        ]
        begin = 0
        for name, ops, end in [*self.phases, ("", self._last, len(self.turns))]:
            turns = [turn for turn in self.turns[begin:end] if only in (None, turn.pass_name)]
            if end > begin:
                lines += ["", *([f"{name}:"] if name else [])]
                lines += _told(turns)
                lines += [f"  {'after ' + (name or 'all passes'):{WIDTH}}  {line}" for line in _places(ops)]
            begin = end
        return "\n".join(lines)

    def to_json(self, only: str | None = None) -> dict[str, Any]:
        """The same as plain data."""
        phase_of = [name for i, (name, _, end) in enumerate(self.phases) for _ in range(end - self._begin(i))]
        return {
            "wanted": self.wanted,
            "nodes": list(self.nodes),
            "ops": [_op_json(op) for op in self.start],
            "passes": [
                _turn_json(turn) | {"phase": phase}
                for turn, phase in zip(self.turns, [*phase_of, *[""] * len(self.turns)], strict=False)
                if only in (None, turn.pass_name)
            ],
            "phases": [{"phase": name, "ops": [_op_json(op) for op in ops]} for name, ops, _ in self.phases],
        }

    def _begin(self, phase: int) -> int:
        return self.phases[phase - 1][2] if phase else 0


WIDTH = 26
"""Characters of the column of passes."""


class _Names:
    """The model nodes that a location stands for, remembered by the location."""

    def __init__(self) -> None:
        self.found: dict[int, tuple[Attribute, tuple[str, ...]]] = {}

    def __call__(self, location: Attribute) -> tuple[str, ...]:
        known = self.found.get(id(location))
        if known is None:
            names = locations.nodes(location) if isinstance(location, LocationAttr) else ()
            known = self.found[id(location)] = location, tuple(names)
        return known[1]


def _kinds(ops: Iterable[Op]) -> Counter[str]:
    return Counter(op.name for op in ops)


def _title(op: Operation) -> str:
    for key, mark in (("sym_name", "@"), ("sym", "")):
        title = op.properties.get(key)
        if isinstance(title, StringAttr):
            return f"{mark}{title.data}" if mark else f'"{title.data}"'
    return ""


def _named(op: Operation) -> str:
    """An op that holds others, as one says where something is."""
    return f"{op.name.rpartition('.')[2]} {_title(op)}".rstrip()


def _hint(wanted: str, known: Sequence[str], nodes: int) -> str:
    """What may have been meant; `known` begins with the names of nodes."""
    from difflib import get_close_matches

    close = get_close_matches(wanted, known, 3, 0.6)
    last = {name.rpartition("/")[2]: name for name in reversed(known)}
    close += [last[name] for name in get_close_matches(wanted.rpartition("/")[2], last, 3, 0.6)]
    close = list(dict.fromkeys(close))[:3]
    if close:
        return f"did you mean {' or '.join(repr(name) for name in close)}?"
    return f"it has {_few(known[:nodes])}"


def _few(items: Sequence[str], most: int = SHOWN) -> str:
    return ", ".join(items[:most]) + (f", {len(items) - most} more" if len(items) > most else "")


def _times(text: str, number: int) -> str:
    return f"{text} ({number}×)" if number > 1 else text


def _summary(ops: Iterable[Op]) -> str:
    return _few([_times(name, number) for name, number in _kinds(ops).items()]) or "nothing"


def _places(ops: Sequence[Op]) -> list[str]:
    """Ops with where they are, alike ones in one line."""
    if not ops:
        return ["no op stands for it any more"]
    alike: dict[tuple[str, str], list[Op]] = {}
    for op in ops:
        alike.setdefault((op.name, op.where), []).append(op)
    lines: list[str] = []
    for (name, where), some in alike.items():
        what = str(some[0]) if len(some) == 1 else f"{name} ({len(some)}×)"
        type = f" : {some[0].type}" if len({op.type for op in some}) == 1 and some[0].type else ""
        lines.append(f"{what}{type}" + (f" in {where}" if where else ""))
    more = len(lines) - 2 * SHOWN
    return lines if more <= 1 else [*lines[: 2 * SHOWN], f"{more} more lines like these"]


def _told(turns: Sequence[Turn]) -> list[str]:
    lines: list[str] = []
    silent: list[str] = []
    for turn in turns:
        if not turn.says_anything:
            silent.append(turn.pass_name)
            continue
        said = [*_alike("applied", turn.applied), *_alike("declined", turn.declined), *map(_decided, turn.decisions)]
        said = [part for one in said for part in one.split("\n")]
        if turn.changed:
            said.append(f"now       {_summary(turn.ops)}")
        if turn.unmatched:
            said.append(f"no match  {_few(turn.unmatched)}")
        lines += [f"  {turn.pass_name if not i else '':{WIDTH}}  {line}" for i, line in enumerate(said)]
    if silent:
        lines.append(f"  {'nothing to do with it:':{WIDTH}}  {', '.join(dict.fromkeys(silent))}")
    return lines


def _alike(mark: str, entries: Mapping[Any, int]) -> list[str]:
    """Entries that differ in their locations only, in one line each."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for one in entries:
        reason = one.reason if isinstance(one, Declined) else ""
        groups.setdefault((one.pattern, one.op, reason), []).append(locations.text(one.location))
    lines: list[str] = []
    for (pattern, op, reason), places in groups.items():
        places = list(dict.fromkeys(places))
        at = f" at {_few(places, 2)}" if places[0] else ""
        lines.append(f"{mark:8}  {pattern} on {op}{at}" + (f": {reason}" if reason else ""))
    return lines


def _decided(one: Decision) -> str:
    """A decision and what lost, the nearest first."""
    losers = [x for x in one.candidates if x.reason]
    losers.sort(key=lambda x: x.score if x.score is not None else float("inf"))
    lines = [f"decided   {one.what} of {one.op} at {locations.text(one.location)}: {one.chosen}"]
    cost = next((x.score for x in one.candidates if not x.reason and x.score is not None), None)
    if cost is not None:
        lines[0] += f" ({cost:,.6g} {one.unit})"
    for x in losers[:3]:
        score = f" ({x.score:,.6g} {one.unit})" if x.score is not None else ""
        lines.append(f"            rather than {x.name}{score}: {x.reason}")
    if len(losers) > 3:
        lines.append(f"            and {len(losers) - 3} more")
    return "\n".join(lines)


def _op_json(op: Op) -> dict[str, str]:
    title = op.title.strip('@"')
    return {"op": op.name, "title": title, "type": op.type, "in": op.where, "location": op.location}


def _turn_json(turn: Turn) -> dict[str, Any]:
    def entry(one: Rewrite | Declined, times: int) -> dict[str, Any]:
        reason = {"reason": one.reason} if isinstance(one, Declined) else {}
        where = {"op": one.op, "location": locations.text(one.location)}
        return {"pattern": one.pattern, **where, **reason, "times": times}

    return {
        "pass": turn.pass_name,
        "number": turn.number,
        "applied": [entry(one, times) for one, times in turn.applied.items()],
        "declined": [entry(one, times) for one, times in turn.declined.items()],
        "decisions": [
            {
                "what": one.what,
                "op": one.op,
                "location": locations.text(one.location),
                "chosen": one.chosen,
                "unit": one.unit,
                "candidates": [x._asdict() for x in one.candidates],
            }
            for one in turn.decisions
        ],
        "unmatched": list(turn.unmatched),
        "ops": dict(_kinds(turn.ops)),
    }
