"""Every kind of corruption of a routed program is refused, wherever it is made, and for its own reason."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pytest
from routed_programs import routed
from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, ModuleOp, StringAttr, f64, i32, i64
from xdsl.ir import Operation

from headrace.dialects.machine.attributes import device_of, set_device
from headrace.dialects.rdu.attributes import RoutesAttr, StreamAttr, ViewAttr
from headrace.dialects.rdu.ops import AgcuOp, ConfigOp, FlowOp, LaunchOp, LoopOp, PcuOp, PmuOp, RegionOp, UnitOp
from headrace.dialects.rdu.routes import Routes, move_of, numbers_of, switch_at
from headrace.dialects.rdu.syntax import integer, symbol
from headrace.dialects.support.access import Loop, Stream, View
from headrace.tools.audit import audit

Corruption = Callable[[ModuleOp], Iterator[None]]
"""Makes one change after the other in a module: each time it yields, the module is corrupt in one place."""
T = TypeVar("T", bound=Operation)
PROGRAMS = ("diamond", "attn", "mlp_b256", "sockets")
MOST = 8
"""Changes of a kind that are tried in a program."""

KINDS: list[tuple[str, str, Corruption]] = []
"""What is done, the code of the refusal, and how."""


def kind(what: str, code: str) -> Callable[[Corruption], Corruption]:
    """Lists a corruption."""

    def listed(corruption: Corruption) -> Corruption:
        KINDS.append((what, code, corruption))
        return corruption

    return listed


def ops(module: ModuleOp, kind: type[T]) -> list[T]:
    return [op for op in module.walk() if isinstance(op, kind)]


def units(flow: FlowOp) -> dict[str, UnitOp]:
    config = flow.parent_op()
    assert isinstance(config, ConfigOp)
    return {u.title: u for u in config.units}


def sites(unit: UnitOp) -> list[tuple[int, int]]:
    assert unit.sites is not None
    flat = [int(n) for n in unit.sites.get_values()]
    return list(zip(flat[::2], flat[1::2], strict=True))


def stand(unit: UnitOp, at: Sequence[tuple[int, int]]) -> None:
    unit.sites = DenseArrayBase.from_list(i32, [n for site in at for n in site])


def routes(flow: FlowOp) -> Routes:
    assert flow.routes is not None
    return flow.routes.data


def reroute(flow: FlowOp, rows: Sequence[tuple[tuple[int, int], str, int]]) -> None:
    flow.routes = RoutesAttr(Routes(tuple(r[0] for r in rows), tuple(r[1] for r in rows), tuple(r[2] for r in rows)))


def rows_of(flow: FlowOp) -> list[tuple[tuple[int, int], str, int]]:
    return list(zip(*routes(flow), strict=True))


def way(a: tuple[int, int], b: tuple[int, int]) -> str:
    """Along x, then along y."""
    (ax, ay), (bx, by) = a, b
    return ("e" * (bx - ax) or "w" * (ax - bx)) + ("s" * (by - ay) or "n" * (ay - by))


def ends(flow: FlowOp) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    named = units(flow)
    return sites(named[flow.ends[0]]), sites(named[flow.ends[1]])


# Units.


@kind("a site is used by two units", "site-taken")
def _(module: ModuleOp) -> Iterator[None]:
    for op_kind in (PcuOp, PmuOp, AgcuOp):
        some = list(ops(module, op_kind))[:4]
        for unit, other in itertools.pairwise(some):
            if unit.parent_op() is other.parent_op():
                old = sites(unit)
                stand(unit, [sites(other)[0], *old[1:]])
                yield
                stand(unit, old)


@kind("a unit uses a site twice", "site-taken")
def _(module: ModuleOp) -> Iterator[None]:
    for unit in ops(module, UnitOp):
        if len(old := sites(unit)) > 1:
            stand(unit, [old[1], *old[1:]])
            yield
            stand(unit, old)


@kind("a unit stands on a site of another kind", "bad-site")
def _(module: ModuleOp) -> Iterator[None]:
    for unit in ops(module, UnitOp):
        old = sites(unit)
        (x, y) = old[0]
        stand(unit, [(x + 1, y), *old[1:]])  # the pattern of the chip alternates; beside the edge are no generators
        yield
        stand(unit, old)


def collectives(module: ModuleOp) -> list[Operation]:
    return [op for op in module.walk() if op.name in ("tensor.all_reduce", "tensor.permute")]


@kind("a group has more sockets than the mesh", "bad-group")
def _(module: ModuleOp) -> Iterator[None]:
    for op in collectives(module):
        old, op.properties["sizes"] = op.properties["sizes"], DenseArrayBase.from_list(i64, [32])
        yield
        op.properties["sizes"] = old


@kind("groups of a collective do not divide the mesh", "bad-group")
def _(module: ModuleOp) -> Iterator[None]:
    for op in collectives(module):
        old, op.properties["strides"] = op.properties["strides"], DenseArrayBase.from_list(i64, [3])
        yield
        op.properties["strides"] = old


@kind("the mesh has more sockets than the device", "too-many-sockets")
def _(module: ModuleOp) -> Iterator[None]:
    device = device_of(module)
    if collectives(module):
        set_device(module, device.with_values(sockets__count=8))
        yield
        set_device(module, device)


@kind("a body needs more inputs than a unit has", "unit-too-small")
def _(module: ModuleOp) -> Iterator[None]:
    device = device_of(module)
    set_device(module, device.with_values(pcu__inputs=1))
    yield
    set_device(module, device)


@kind("a unit is systolic without a contraction", "wrong-mode")
def _(module: ModuleOp) -> Iterator[None]:
    for unit in ops(module, PcuOp):
        old = unit.mode
        unit.mode = StringAttr("simd" if old.data == "systolic" else "systolic")
        yield
        unit.mode = old


@kind("a config takes more units than the device has", "too-many-units")
def _(module: ModuleOp) -> Iterator[None]:
    device = device_of(module)
    set_device(module, device.with_values(grid__agcus_per_edge=1, grid__agcu_edges=1))
    yield
    set_device(module, device)


# Routes.


@kind("a link is taken out of a route", "wrong-end")
def _(module: ModuleOp) -> Iterator[None]:
    for flow in ops(module, FlowOp):
        old = rows_of(flow)
        for i, (pair, steps, channel) in enumerate(old[:3]):
            if steps:
                reroute(flow, [*old[:i], (pair, steps[1:], channel), *old[i + 1 :]])
                yield
        reroute(flow, old)


@kind("a route ends at another switch", "wrong-end")
def _(module: ModuleOp) -> Iterator[None]:
    for flow in ops(module, FlowOp):
        old = rows_of(flow)
        pair, steps, channel = old[-1]
        reroute(flow, [*old[:-1], (pair, steps + "e" if ends(flow)[1][pair[1]][0] < 50 else steps + "w", channel)])
        yield
        reroute(flow, old)


@kind("a route leaves the mesh", "off-the-mesh")
def _(module: ModuleOp) -> Iterator[None]:
    for flow in ops(module, FlowOp):
        old = rows_of(flow)
        pair, steps, channel = old[0]
        reroute(flow, [(pair, "n" * 50 + steps + "s" * 50, channel), *old[1:]])
        yield
        reroute(flow, old)


@kind("turns close a cycle of channels", "channel-cycle")
def _(module: ModuleOp) -> Iterator[None]:
    corners = [(10, 10), (11, 10), (11, 11), (10, 11)]
    for config in ops(module, ConfigOp):
        named = {u.title: u for u in config.units}
        # what a compute unit sends is no tree, so its ways can be led anywhere
        some = [f for f in config.flows if isinstance(named[f.ends[0]], PcuOp)]
        rows = [(f, i) for f in some for i in range(len(rows_of(f)))][:4]
        if len(rows) < 4:
            continue
        old = {f: rows_of(f) for f, _ in rows}
        for corner, (flow, i) in enumerate(rows):
            (a, b), _, _ = old[flow][i]
            first, after, last = (corners[(corner + k) % 4] for k in range(3))
            steps = way(ends(flow)[0][a], first) + way(first, after) + way(after, last) + way(last, ends(flow)[1][b])
            now = rows_of(flow)
            reroute(flow, [*now[:i], ((a, b), steps, 0), *now[i + 1 :]])
        yield
        for flow, before in old.items():
            reroute(flow, before)


@kind("a route takes a channel that the device lacks", "unknown-channel")
def _(module: ModuleOp) -> Iterator[None]:
    for flow in ops(module, FlowOp):
        old = rows_of(flow)
        reroute(flow, [(pair, steps, 8) for pair, steps, _ in old])
        yield
        reroute(flow, old)


@kind("the same words part and meet again", "no-tree")
def _(module: ModuleOp) -> Iterator[None]:
    for flow in ops(module, FlowOp):
        named = units(flow)
        if isinstance(named[flow.ends[0]], PcuOp) or not isinstance(named[flow.ends[1]], PcuOp):
            continue
        old = rows_of(flow)
        for i, (pair, steps, channel) in enumerate(old):
            column, row = ends(flow)[0][pair[0]]
            at = switch_at(numbers_of([column], [row])[0] + move_of(steps))
            if steps and at[1] + 1 < device_of(module).mesh[1]:
                turn = {"e": "wsen", "w": "ewsn" if at[0] == 0 else "eswn", "n": "senw", "s": "nesw"}[steps[-1]]
                reroute(flow, [*old[:i], (pair, steps + turn, channel), *old[i + 1 :]])
                break
        else:
            continue
        yield
        reroute(flow, old)


@kind("more flows share a link than it can tell apart", "too-many-flows")
def _(module: ModuleOp) -> Iterator[None]:
    device = device_of(module)
    for flow in ops(module, FlowOp):
        # Along y first, where words are forwarded by identifiers.
        old = rows_of(flow)
        begin, end = ends(flow)
        bent = [(pair, way(begin[pair[0]][::-1], end[pair[1]][::-1]), 1) for pair, _, _ in old]
        reroute(flow, [(p, steps.translate(str.maketrans("ewsn", "snew")), c) for p, steps, c in bent])
        most = max(c.nets for c in audit(module).configs)
        if most > 1:
            set_device(module, device.with_values(network__flow_ids=most - 1))
            yield
            set_device(module, device)
        reroute(flow, old)


@kind("a flow has a credit less than its round trip", "too-few-credits")
def _(module: ModuleOp) -> Iterator[None]:
    for flow in ops(module, FlowOp):
        old = flow.credits
        assert old is not None
        flow.credits = integer(old.value.data - 1)
        yield
        flow.credits = old


@kind("the load of the busiest link is understated", "link-load")
def _(module: ModuleOp) -> Iterator[None]:
    for config in ops(module, ConfigOp):
        old = config.link_load
        assert old is not None
        config.link_load = FloatAttr(old.value.data * 0.99, f64)
        yield
        config.link_load = old


# Pairs.


@kind("a pair is dropped", "missing-pair")
def _(module: ModuleOp) -> Iterator[None]:
    for flow in ops(module, FlowOp):
        old = rows_of(flow)
        for i in range(min(3, len(old))):
            reroute(flow, [*old[:i], *old[i + 1 :]])
            yield
        reroute(flow, old)


@kind("two pairs change partners", "missing-pair")
def _(module: ModuleOp) -> Iterator[None]:
    for flow in ops(module, FlowOp):
        if any(isinstance(u, AgcuOp) for name, u in units(flow).items() if name in flow.ends):
            continue  # any generator reaches any address
        old = rows_of(flow)
        have = {pair for pair, _, _ in old}
        starts, goals = ends(flow)
        for i, ((a, b), _, channel) in enumerate(old[1:], 1):
            (c, d), _, _ = old[0]
            if (a, d) not in have and (c, b) not in have:
                first = (c, b), way(starts[c], goals[b]), channel
                other = (a, d), way(starts[a], goals[d]), channel
                reroute(flow, [first, *old[1:i], other, *old[i + 1 :]])
                yield
                reroute(flow, old)
                break


@kind("a pair is there that carries nothing", "needless-pair")
def _(module: ModuleOp) -> Iterator[None]:
    for flow in ops(module, FlowOp):
        named = units(flow)
        if not all(isinstance(named[name], PcuOp) for name in flow.ends) or named[flow.ends[0]].size < 2:
            continue
        old = rows_of(flow)
        reroute(flow, [*old, ((0, 1), way(ends(flow)[0][0], ends(flow)[1][1]), 0)])
        yield
        reroute(flow, old)


@kind("a pair is listed twice", "bad-pair")
def _(module: ModuleOp) -> Iterator[None]:
    for flow in ops(module, FlowOp):
        old = rows_of(flow)
        reroute(flow, [*old, old[0]])
        yield
        reroute(flow, old)


@kind("a flow is taken away", "port-not-fed")
def _(module: ModuleOp) -> Iterator[None]:
    for flow in ops(module, FlowOp):
        if isinstance(units(flow)[flow.ends[1]], PcuOp):
            block = flow.parent_block()
            assert block is not None
            after = flow.next_op
            flow.detach()
            yield
            if after is not None:
                block.insert_op_before(flow, after)
            else:
                block.add_op(flow)


# Buffers.


@kind("a buffer holds fewer copies than its readers are apart", "deadlock")
def _(module: ModuleOp) -> Iterator[None]:
    for unit in ops(module, PmuOp):
        if unit.title == "rows":  # of the diamond
            old = unit.copies
            for fewer in (3, 2, 1):
                unit.copies = integer(fewer)
                yield
            unit.copies = old


@kind("a unit holds more than its bytes", "buffer-too-large")
def _(module: ModuleOp) -> Iterator[None]:
    device = device_of(module)
    fullest = round(max(c.fullest for c in audit(module).configs) * device.pmu.bytes)
    set_device(module, device.with_values(pmu__bytes=fullest - 1, pmu__banks=1))
    yield
    set_device(module, device)


@kind("a buffer lies over more banks than there are", "too-many-banks")
def _(module: ModuleOp) -> Iterator[None]:
    for unit in ops(module, PmuOp):
        old = unit.banks
        unit.banks = integer(33)
        yield
        unit.banks = old


def views(module: ModuleOp) -> Iterator[tuple[FlowOp, str, View, int]]:
    """Every address program at a buffer or a parameter: flow, side, view, and the elements there."""
    for flow in ops(module, FlowOp):
        config = flow.parent_op()
        assert isinstance(config, ConfigOp)
        for name, side in zip(flow.ends, ("from", "to"), strict=True):
            attribute = flow.src_view if side == "from" else flow.dst_view
            unit = units(flow)[name]
            if attribute is None:
                continue
            type = unit.type if isinstance(unit, PmuOp) else config.params.data[_param(unit)].type
            yield flow, side, attribute.view, _elements(type.get_shape())


def _param(unit: UnitOp) -> int:
    assert isinstance(unit, AgcuOp)
    return unit.param.value.data


def _elements(shape: Sequence[int]) -> int:
    found = 1
    for n in shape:
        found *= n
    return found


@kind("an address program begins beyond its memory", "out-of-bounds")
def _(module: ModuleOp) -> Iterator[None]:
    for flow, side, view, elements in views(module):
        low, high = view.bounds(flow.stream.stream.full_shape)
        for by in (-1 - low, elements - high):
            flow.properties[side] = ViewAttr.of(View(view.offset + by, view.strides))
            yield
        flow.properties[side] = ViewAttr.of(view)


@kind("a writer's stride is none, so that cells are written twice", "written-twice")
def _(module: ModuleOp) -> Iterator[None]:
    for flow, side, view, _ in views(module):
        shape = flow.stream.stream.full_shape
        dim = next((d for d, n in enumerate(shape) if n > 1 and view.strides[d]), None)
        if side == "to" and dim is not None:
            strides = tuple(0 if d == dim else s for d, s in enumerate(view.strides))
            flow.properties[side] = ViewAttr.of(View(view.offset, strides))
            yield
            flow.properties[side] = ViewAttr.of(view)


@kind("a store's loop is cut short, so that elements are never written", "never-written")
def _(module: ModuleOp) -> Iterator[None]:
    for flow in ops(module, FlowOp):
        unit = units(flow)[flow.ends[1]]
        stream = flow.stream.stream
        if not (isinstance(unit, AgcuOp) and unit.direction.data == "store"):
            continue
        time = tuple(Loop(max(1, x.count - 1), x.dim, x.step) for x in stream.time)
        space = tuple(Loop(x.count, -1, 0) for x in stream.space)
        if time == stream.time and not any(x.count > 1 for x in stream.space):
            continue
        flow.stream = StreamAttr.of(Stream(stream.tile, stream.dtype, time, space))
        yield
        flow.stream = StreamAttr.of(stream)


@kind("the frames of a reader are not those of its writer", "frames-differ")
def _(module: ModuleOp) -> Iterator[None]:
    for flow, side, view, _ in views(module):
        unit = units(flow)[flow.ends[0]]
        if (
            side == "from"
            and isinstance(unit, PmuOp)
            and unit.frames.value.data
            and flow.stream.stream.time[0].dim >= 0
        ):
            dim = flow.stream.stream.time[0].dim
            strides = tuple(-s if d == dim else s for d, s in enumerate(view.strides))
            reach = (flow.stream.stream.full_shape[dim] - 1) * view.strides[dim]
            flow.properties[side] = ViewAttr.of(View(view.offset + reach, strides))
            yield
            flow.properties[side] = ViewAttr.of(view)


@kind("a unit steps more often at one port than at another", "steps-differ")
def _(module: ModuleOp) -> Iterator[None]:
    for flow in ops(module, FlowOp):
        stream = flow.stream.stream
        unit = units(flow)[flow.ends[1]]
        if isinstance(unit, PcuOp):
            flow.stream = StreamAttr.of(Stream(stream.tile, stream.dtype, (*stream.time, Loop(2, -1, 0)), stream.space))
            yield
            flow.stream = StreamAttr.of(stream)


# Off-chip memory.


def placed(module: ModuleOp) -> list[RegionOp]:
    return [r for r in ops(module, RegionOp) if r.address is not None]


@kind("two regions that are needed together overlap", "regions-overlap")
def _(module: ModuleOp) -> Iterator[None]:
    regions = [r for r in placed(module) if r.kind.data != "temp"]
    for region, other in itertools.pairwise(regions):
        if region.kind.data in ("input", "weight") and other.kind.data in ("input", "weight"):
            old = region.address
            region.address = other.address
            yield
            region.address = old


@kind("a region ends beyond its memory", "out-of-memory")
def _(module: ModuleOp) -> Iterator[None]:
    hbm = device_of(module).hbm
    assert hbm is not None
    for region in placed(module):
        old = region.address
        region.address = integer(hbm.bytes - 8)
        yield
        region.address = old


@kind("a region lies between two elements", "not-aligned")
def _(module: ModuleOp) -> Iterator[None]:
    for region in placed(module):
        old = region.address
        assert old is not None
        region.address = integer(old.value.data + 2)
        yield
        region.address = old


@kind("a launch reads what no launch has written", "read-too-early")
def _(module: ModuleOp) -> Iterator[None]:
    temp = next((r.sym_name.data for r in ops(module, RegionOp) if r.kind.data in ("temp", "output")), "")
    for launch in ops(module, LaunchOp)[:1]:
        old = launch.args
        launch.args = type(old)([symbol(temp), *list(old)[1:]])
        yield
        launch.args = old


@kind("a round of a loop runs another config", "bad-loop")
def _(module: ModuleOp) -> Iterator[None]:
    for loop in ops(module, LoopOp):
        twin = next(op for op in module.body.block.ops if isinstance(op, ConfigOp)).clone()
        twin.sym_name = StringAttr("twin")
        module.body.block.insert_op_before(twin, loop.parent_op())  # pyright: ignore[reportArgumentType]
        last = loop.launches[-1]
        old, last.config = last.config, symbol("twin")
        yield
        last.config = old
        twin.detach()


@kind("a round of a loop is launched by the host", "bad-loop")
def _(module: ModuleOp) -> Iterator[None]:
    for loop in ops(module, LoopOp):
        loop.launches[-1].mode = StringAttr("sw")
        yield
        loop.launches[-1].mode = StringAttr("hw")


@kind("a loop has another number of rounds", "bad-loop")
def _(module: ModuleOp) -> Iterator[None]:
    for loop in ops(module, LoopOp):
        old, loop.times = loop.times, integer(2)
        yield
        loop.times = old


@kind("a round of a loop writes too far away", "bad-loop")
def _(module: ModuleOp) -> Iterator[None]:
    for loop in ops(module, LoopOp):
        name = loop.launches[-1].places[-1][0]
        region = next(r for r in ops(module, RegionOp) if r.sym_name.data == name)
        old = region.address
        assert old is not None
        region.address = integer(old.value.data + (1 << 20))
        yield
        region.address = old


CASES = [pytest.param(*one, id=one[0].replace(" ", "-")) for one in KINDS]


@pytest.mark.parametrize(("what", "code", "corruption"), CASES)
def test_a_corruption_is_refused(what: str, code: str, corruption: Corruption) -> None:
    made = 0
    for name in PROGRAMS:
        module = routed(name)
        for change, _ in enumerate(corruption(module)):
            if change < MOST:
                found = {one.code for one in audit(module).diagnostics}
                assert code in found, f"{name}, change {change}: {what}: {sorted(found)}"
                made += 1
        assert audit(module).diagnostics == (), f"{name} is not what it was"
    assert made, what
