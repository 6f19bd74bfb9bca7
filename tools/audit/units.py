"""Units: every site is of the right kind and taken once, and a body fits the unit that runs it."""

from __future__ import annotations

from collections import Counter
from math import prod

from headrace.dialects.machine.device import UNIT_KINDS, Site
from headrace.tools.audit.looking import Look, few
from headrace.tools.audit.program import BodyOp, Buffer, Compute, Generator, Unit
from headrace.tools.audit.words import CONTRACTIONS
from headrace.tools.audit.work import BETWEEN_SOCKETS, combines, functions_of, passes, stem

TAIL = 2
"""Ops on a result that a systolic unit does beside one function of its tail: bias and scale."""


def check_units(look: Look) -> dict[str, int]:
    """Sites, counts and bodies; how many units of each kind the config takes."""
    config, device = look.config, look.device
    taken: dict[tuple[str, Site], Unit] = {}
    used: dict[str, int] = {}
    for kind in UNIT_KINDS:
        legal = frozenset(device.sites(kind))
        members = [u for u in config.units if u.kind == kind]
        used[kind] = sum(u.size for u in members)
        if used[kind] > len(legal):
            most = sorted(members, key=lambda u: -u.size)
            told = few([f"@{u.name} {u.size}" for u in most])
            look.bad("too-many-units", f"takes {used[kind]} {kind} units of {len(legal)}", why=f"largest: {told}")
        for unit in members:
            sites = [Site(x, y) for x, y in unit.sites.tolist()]
            if wrong := [tuple(s) for s in sites if s not in legal]:
                look.bad("bad-site", f"@{unit.name} stands at {few(wrong)}, where there is no {kind}", unit)
            for site in sites:
                other = taken.setdefault((kind, site), unit)
                if other is not unit or sites.count(site) > 1:
                    look.bad(
                        "site-taken", f"the {kind} at ({site.x}, {site.y}) is @{other.name} and @{unit.name}", unit
                    )
                    break
    for name, times in Counter(u.name for u in config.units).items():
        if times > 1:
            look.bad("name-taken", f"{times} units are called @{name}")
    for unit in config.units:
        if not unit.size:
            look.bad("bad-site", f"@{unit.name} has no site", unit)
        match unit:
            case Compute():
                _check_body(look, unit)
            case Buffer():
                if not 1 <= unit.banks <= device.pmu.banks:
                    look.bad("too-many-banks", f"@{unit.name} lies over {unit.banks} banks of {device.pmu.banks}", unit)
                if unit.copies < 1 or (unit.type.shape and not 0 <= unit.split < len(unit.type.shape)):
                    what = f"@{unit.name} has {unit.copies} copies, split on dim {unit.split}"
                    look.bad("bad-buffer", what, unit)
            case Generator():
                if not 0 <= unit.param < len(config.params):
                    what = f"@{unit.name} names parameter {unit.param} of {len(config.params)}"
                    look.bad("unknown-parameter", what, unit)
    return used


def _check_body(look: Look, unit: Compute) -> None:
    pcu = look.device.pcu
    for what, need, have in (("inputs", unit.inputs, pcu.inputs), ("outputs", len(unit.outputs), pcu.outputs)):
        if need > have:
            look.bad("unit-too-small", f"@{unit.name} has {need} vector {what}, a PCU has {have}", unit)
    ops = [op for op in unit.ops if op.operands]
    first = [op for op in ops if op.name in CONTRACTIONS or combines(op)]
    program = sum((functions_of(op) for op in ops if op not in first), Counter[str]())
    stages, tail = passes(program, look.device)
    systolic = any(op.name in CONTRACTIONS for op in first)
    if systolic != (unit.mode == "systolic"):
        look.bad("wrong-mode", f"@{unit.name} is {unit.mode} with {'a' if systolic else 'no'} contraction", unit)
    if len(first) > 1:
        told = few([op.name for op in first])
        look.bad("unit-too-small", f"@{unit.name} holds {told}; a unit has room for one of them", unit)
    room = TAIL if systolic else pcu.stages
    if len(ops) > 1 and (stages > room or tail > 1):  # a single op runs through the stages as often as it needs
        what = f"the ops of @{unit.name} take {stages} stages and {tail} passes through the tail, it has {room} and 1"
        look.bad("unit-too-small", what, unit)
    for op in ops:
        if stem(op) in BETWEEN_SOCKETS:
            _check_group(look, unit, op)
    live = _live(unit)
    if live > pcu.registers:
        look.bad("unit-too-small", f"@{unit.name} keeps {live} values at a time in {pcu.registers} registers", unit)
    if unit.ops and not set(unit.outputs) <= set(range(len(unit.types))):
        look.bad("bad-body", f"@{unit.name} sends values that it does not make", unit)


def _check_group(look: Look, unit: Compute, op: BodyOp) -> None:
    """The sockets of the mesh fall into groups of as many as the op says."""
    sizes, strides = (tuple(int(n) for n in op.attrs.get(name, ())) for name in ("sizes", "strides"))
    count, have = look.sockets, look.device.sockets.count
    told = f"sizes {list(sizes)} and strides {list(strides)} of {op.name} in @{unit.name}"
    if len(sizes) != len(strides) or not sizes or min(*sizes, *strides) < 1:
        look.bad("bad-group", f"{told} name no group of sockets", unit)
        look.untimed.add(unit)
        return
    groups: dict[int, int] = {}
    for socket in range(count):  # the place of a group is that of the socket whose coordinates in it are all 0
        place = socket - sum(socket // stride % size * stride for size, stride in zip(sizes, strides, strict=True))
        groups[place] = groups.get(place, 0) + 1
    if any(n != prod(sizes) for n in groups.values()):
        mesh = f"a mesh of {count} sockets" if count > 1 else "one socket"
        look.bad("bad-group", f"{told} do not divide {mesh} into groups of {prod(sizes)}", unit)
        look.untimed.add(unit)
    elif count > have:  # which is told once, of the mesh
        look.untimed.add(unit)


def _live(unit: Compute) -> int:
    """The most values that are made and still needed between two ops; constants are part of the configuration."""
    last = {v: i for i, op in enumerate(unit.ops) for v in op.operands}
    last.update(dict.fromkeys(unit.outputs, len(unit.ops)))
    constants = {v for op in unit.ops if not op.operands for v in op.results}
    made = dict.fromkeys(range(unit.inputs), -1) | {v: i for i, op in enumerate(unit.ops) for v in op.results}
    most = 0
    for at in range(len(unit.ops)):
        most = max(most, sum(made[v] <= at < last.get(v, -1) for v in made if v not in constants))
    return most
