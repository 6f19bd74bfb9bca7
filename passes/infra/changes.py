"""What a pass changed: a copy of a module to compare with, the first op that differs, and the difference as text.

    before = Snapshot(module)
    pass_.run(ctx, module)
    for change in before.changes():      # only the functions, sections, configs and recipes that were touched
        print(change.where(), change.text())

A snapshot keeps up: `update` copies again only what was touched, so that following a pipeline costs one copy of the
module and then what the passes do.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Attribute, Block, Operation, OpResult, Region, SSAValue
from xdsl.printer import Printer

from headrace.dialects.support import locations

SHOWN = 24
"""Characters shown of the elements of a constant that is long; the rest is told by its size and a checksum."""
_CONSTANT = re.compile(r"dense<((?:\[|\"0x)[^>]{80,})>")
CONTEXT = 2
"""Unchanged lines around a change."""


class Difference(NamedTuple):
    """Where two ops first differ: the op before and after (None: there is none), and in what."""

    before: Operation | None
    after: Operation | None
    what: str


class _Comparison:
    """Compares op by op in order. Values that are equal so far are paired, so that operands can be compared."""

    def __init__(self) -> None:
        self.values: dict[SSAValue, SSAValue] = {}
        self.blocks: dict[Block, Block] = {}

    def ops(self, before: Operation, after: Operation) -> Difference | None:
        what = self._op(before, after)
        if what:
            return Difference(before, after, what)
        for one, other in zip(before.regions, after.regions, strict=True):
            found = self._region(one, other, before, after)
            if found is not None:
                return found
        return None

    def _op(self, before: Operation, after: Operation) -> str:
        if before.name != after.name:
            return "name"
        for kind, old, new in (
            ("property", before.properties, after.properties),
            ("attribute", before.attributes, after.attributes),
        ):
            if (old or new) and old != new:
                names = [name for name in (*new, *old) if old.get(name) != new.get(name)]
                return f"{kind} '{names[0]}'"
        values = self.values
        old_operands, new_operands = before.operands, after.operands
        if len(old_operands) != len(new_operands):
            return "number of operands"
        for number, (old, new) in enumerate(zip(old_operands, new_operands, strict=True)):
            if values.setdefault(old, new) is not new:
                return f"operand {number}"
        if len(before.results) != len(after.results):
            return "number of results"
        for number, (old, new) in enumerate(zip(before.results, after.results, strict=True)):
            if not self._same_type(old.type, new.type):
                return f"type of result {number}"
            if values.setdefault(old, new) is not new:
                return f"uses of result {number}"
        if len(before.regions) != len(after.regions):
            return "number of regions"
        if before.successors or after.successors:
            if len(before.successors) != len(after.successors):
                return "number of successors"
            for old, new in zip(before.successors, after.successors, strict=True):
                if self.blocks.setdefault(old, new) is not new:
                    return "successors"
        return ""

    def _region(self, one: Region, other: Region, before: Operation, after: Operation) -> Difference | None:
        old, new = one.first_block, other.first_block
        while old is not None and new is not None:
            if self.blocks.setdefault(old, new) is not new:
                return Difference(before, after, "successors")
            if len(old.args) != len(new.args):
                return Difference(before, after, "number of block arguments")
            for number, (x, y) in enumerate(zip(old.args, new.args, strict=True)):
                if not self._same_type(x.type, y.type) or self.values.setdefault(x, y) is not y:
                    return Difference(before, after, f"block argument {number}")
            a, b = old.first_op, new.first_op
            while a is not None and b is not None:
                found = self.ops(a, b)
                if found is not None:
                    return found
                a, b = a.next_op, b.next_op
            if a is not None or b is not None:
                return Difference(a, b, "number of ops")
            old, new = old.next_block, new.next_block
        if old is not None or new is not None:
            return Difference(before, after, "number of blocks")
        return None

    @staticmethod
    def _same_type(one: Attribute, other: Attribute) -> bool:
        return one is other or one == other


def difference(before: Operation, after: Operation) -> Difference | None:
    """Where two ops and all they hold first differ; None when they are equal. Locations and value names do not
    count, types of results do."""
    return _Comparison().ops(before, after)


@dataclass
class Change:
    """One top-level op that a pass touched. `before` is a copy, None when the op is new; `after` is None when it is
    gone; both are there with `first` None when the op only stands elsewhere in the module."""

    before: Operation | None
    after: Operation | None
    first: Difference | None
    """Where they first differ, when both are there."""
    snapshot: Snapshot

    def where(self) -> str:
        """The op by kind and symbol: `func.func @main`."""
        op = self.after or self.before
        assert op is not None
        return f"{op.name}{symbol_of(op) and f' @{symbol_of(op)}'}"

    def culprit(self) -> tuple[str, str, str]:
        """The first op that differs: its name, its model location, and what became of it."""
        if self.before is None or self.after is None or self.first is None:
            op = self.after or self.before
            assert op is not None
            done = "is new" if self.before is None else "is gone" if self.after is None else "stands elsewhere"
            return op.name, locations.of(op), done
        before, after, what = self.first
        gone = before is not None and self.snapshot.is_gone(before)
        new = after is not None and self.snapshot.is_new(after)
        if before is not None and gone:
            return (
                before.name,
                locations.of(before),
                f"became '{after.name}'" if after is not None and new else "is gone",
            )
        if after is not None and new:
            return after.name, locations.of(after), "is new"
        op = after or before
        assert op is not None
        stays = before is not None and self.snapshot.ops.get(before) is after
        return op.name, locations.of(op), f"has another {what}" if stays else "stands elsewhere"

    def text(self, generic: bool = False, debuginfo: bool = False) -> str:
        """A unified diff of the op, until the snapshot is brought up to date. A value has the same name before and
        after, and in the diffs of later passes."""
        from difflib import unified_diff

        names = self.snapshot.names_of(self.after or self.before, self.before)
        style = (generic, debuginfo)
        old = _lines(self.before, names, self.snapshot.live, *style) if self.before is not None else []
        new = _lines(self.after, names, {}, *style) if self.after is not None else []
        where = self.where()
        return "\n".join(unified_diff(old, new, f"before {where}", f"after {where}", lineterm="", n=CONTEXT))


@dataclass
class Names:
    """Names of the values of one top-level op, kept from pass to pass. New values get names that were never used."""

    given: dict[SSAValue, str] = field(default_factory=dict[SSAValue, str])
    used: set[str] = field(default_factory=set[str])
    next: int = 0

    def of(self, value: SSAValue) -> str:
        """The name of a value: what it is called in the IR, the key of a weight, or a number."""
        name = self.given.get(value)
        if name is None:
            name = self.given[value] = self._fresh(value.name_hint or _weight(value))
            self.used.add(name)
        return name

    def _fresh(self, hint: str) -> str:
        if hint and hint not in self.used:
            return hint
        prefix = f"{hint}_" if hint else ""
        while True:
            name = f"{prefix}{self.next}"
            self.next += 1
            if name not in self.used:
                return name


class Snapshot:
    """A copy of a module, op by op of its top level, and which value of the module each value of the copy stands
    for."""

    def __init__(self, module: ModuleOp) -> None:
        self.module = module
        self.attributes = dict(module.attributes)
        self.copies: dict[Operation, Operation] = {}
        """Op of the module → its copy, in order."""
        self.live: dict[SSAValue, SSAValue] = {}
        """Value of the copy → the value of the module that it was copied from."""
        self.ops: dict[Operation, Operation] = {}
        """Op of the copy → the op of the module that it was copied from."""
        self._names: dict[str, Names] = {}
        self._copy_all()

    def changes(self) -> list[Change]:
        """The top-level ops that differ from the copy, in the order of the module, then those that are gone."""
        found: list[Change] = []
        now = list(self.module.body.block.ops)
        there = set(now)
        gone = {self._key(op): (op, copy) for op, copy in self.copies.items() if op not in there}
        kept: list[Operation] = []
        comparison = _Comparison()
        for op in now:
            copy = self.copies.get(op)
            if copy is not None:
                kept.append(op)
            elif (twin := gone.pop(self._key(op), None)) is not None:
                copy = twin[1]
            first = comparison.ops(copy, op) if copy is not None else None
            if copy is None or first is not None:
                found.append(Change(copy, op, first, self))
        order = [op for op in self.copies if op in there]
        touched = {change.after for change in found}
        for was, op in zip(order, kept, strict=True):
            if was is not op and op not in touched:
                found.append(Change(self.copies[op], op, None, self))
        found += [Change(copy, None, None, self) for _, copy in gone.values()]
        if not found and self.module.attributes != self.attributes:
            empty = ModuleOp([], dict(self.attributes))
            found.append(Change(empty, self.module, Difference(empty, self.module, "attributes"), self))
        return found

    def update(self, changes: list[Change]) -> None:
        """Copy again what has changed."""
        if not changes:
            return
        self.attributes = dict(self.module.attributes)
        now = list(self.module.body.block.ops)
        if any(op.operands or op.results for op in (*now, *self.copies)):
            self._copy_all()  # ops that take values of one another are copied together
            return
        touched = {change.after for change in changes}
        for copy in [self.copies[op] for op in self.copies if op in touched or op.parent is not self.module.body.block]:
            for one in copy.walk():
                self.ops.pop(one, None)
            for value in _values(copy):
                self.live.pop(value, None)
        old, self.copies = self.copies, {}
        for op in now:
            self.copies[op] = self._copy(op) if op in touched or op not in old else old[op]

    def is_gone(self, copy: Operation) -> bool:
        """Whether the op that this one is a copy of is no longer in the module."""
        op: Operation | None = self.ops[copy]
        while op is not None and op is not self.module:
            op = op.parent_op()
        return op is None

    def is_new(self, op: Operation) -> bool:
        """Whether an op of the module is not in the copy."""
        return op not in self.ops.values()

    def before(self, op: Operation) -> Operation | None:
        """What stood in the copy where `op` stands, in a top-level op that was not touched otherwise."""
        top = op
        while (parent := top.parent_op()) is not None and parent is not self.module:
            top = parent
        copy = self.copies.get(top)
        if copy is None or difference(copy, top) is not None:
            return None
        return next((was for was, one in zip(copy.walk(), top.walk(), strict=True) if one is op), None)

    def gone(self) -> list[Operation]:
        """The ops of the copy that are no longer in the module."""
        return [copy for top in self.copies.values() for copy in top.walk() if self.is_gone(copy)]

    def names_of(self, op: Operation | None, before: Operation | None) -> Names:
        """The names of the values of a top-level op, those of its values before the pass given first."""
        assert op is not None
        names = self._names.setdefault(self._key(op), Names())
        if before is not None:
            for value in _values(before):
                names.of(self.live.get(value, value))
        return names

    def _copy_all(self) -> None:
        mapping: dict[SSAValue, SSAValue] = {}
        whole = self.module.clone(mapping)
        self.live = {copy: value for value, copy in mapping.items()}
        self.ops = dict(zip(whole.walk(), self.module.walk(), strict=True))
        self.copies = dict(zip(self.module.body.block.ops, whole.body.block.ops, strict=True))

    def _copy(self, op: Operation) -> Operation:
        mapping: dict[SSAValue, SSAValue] = {}
        copy = op.clone(mapping)
        self.live |= {new: value for value, new in mapping.items()}
        self.ops |= zip(copy.walk(), op.walk(), strict=True)
        return copy

    @staticmethod
    def _key(op: Operation) -> str:
        symbol = symbol_of(op)
        return f"{op.name} {symbol}" if symbol else f"{op.name} {id(op)}"


def symbol_of(op: Operation) -> str:
    """The symbol that an op defines, empty for none."""
    symbol = op.properties.get("sym_name") or op.attributes.get("sym_name")
    return symbol.data if isinstance(symbol, StringAttr) else ""


def _values(op: Operation) -> Iterator[SSAValue]:
    """Every value that an op and the ops inside it define, in order."""
    for one in op.walk():
        yield from one.results
        for region in one.regions:
            for block in region.blocks:
                yield from block.args


def _weight(value: SSAValue) -> str:
    """A name for a value that is a weight: its key, in characters that a name may have."""
    if not isinstance(value, OpResult) or not value.op.name.endswith(".weight"):
        return ""
    key = value.op.properties.get("key")
    name = re.sub(r"[^\w.$-]+", "_", key.data) if isinstance(key, StringAttr) else ""
    return f"_{name}" if name[:1].isdigit() else name


class _Printer(Printer):
    """Prints with names that are kept."""

    def __init__(
        self, out: io.StringIO, names: Names, live: dict[SSAValue, SSAValue], generic: bool, debuginfo: bool
    ) -> None:
        super().__init__(out, print_generic_format=generic, print_debuginfo=debuginfo)
        self.names = names
        self.live = live

    def print_ssa_value(self, value: SSAValue) -> str:
        name = self.names.of(self.live.get(value, value))
        self.print_string(f"%{name}")
        return name


def _lines(op: Operation, names: Names, live: dict[SSAValue, SSAValue], generic: bool, debuginfo: bool) -> list[str]:
    out = io.StringIO()
    printer = _Printer(out, names, live, generic, debuginfo)
    if isinstance(op, ModuleOp):  # its attributes are meant
        printer.print_string(op.name)
        printer.print_op_attributes(op.attributes, reserved_attr_names=("sym_name",), print_keyword=True)
    else:
        printer.print_op(op)
    return [_CONSTANT.sub(_in_short, line) for line in out.getvalue().splitlines()]


class Line(NamedTuple):
    """A line of printed IR and where the op that begins in it came from."""

    text: str
    origin: str


class _Tracing(_Printer):
    """Notes at which character each op begins."""

    def __init__(self, out: io.StringIO) -> None:
        super().__init__(out, Names(), {}, False, False)
        self.out = out
        self.starts: list[tuple[int, Operation]] = []

    def print_op(self, op: Operation) -> None:
        self.starts.append((self.out.tell(), op))
        super().print_op(op)


def readable(op: Operation) -> list[Line]:
    """An op as lines to read: values of weights are called by their keys, long constants are shown in short."""
    out = io.StringIO()
    printer = _Tracing(out)
    printer.print_op(op)
    starts = iter([*printer.starts, (out.tell() + 1, op)])
    start, one = next(starts)
    found: list[Line] = []
    end = 0
    for line in out.getvalue().split("\n"):
        end += len(line) + 1
        origin = locations.of(one) if start < end else ""
        while start < end:
            start, one = next(starts)
        found.append(Line(_CONSTANT.sub(_in_short, line), origin))
    return found


def _in_short(constant: re.Match[str]) -> str:
    elements = constant[1]
    checksum = zlib.crc32(elements.encode())
    return f"dense<{elements[:SHOWN]}…, {len(elements)} characters, checksum {checksum:08x}>"
