"""The rules that a program must keep before it is planned, run or timed. All offenders are reported at once.

What is checked: every port is connected, tile types agree along every flow, views stay inside their buffers, the site
pairs of a flow are exactly those that the addresses need, frames mean the same to every user of a buffer, no cell is
written twice or read before its frame is complete, launches name regions that hold what they need, and routes are
paths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any, cast

import numpy as np

from headrace.dialects.support import dtypes
from headrace.dialects.support.access import Loop, Stream, View
from headrace.dialects.support.diagnostics import Collector
from headrace.dialects.tensor import shapes
from headrace.dialects.tensor.shapes import ShapeError
from headrace.dialects.tensor.shapes.collective import COMMUNICATING, PER_SOCKET, group_of
from headrace.runtime import geometry
from headrace.runtime.program import Agcu, Config, Flow, Pcu, Pmu, Port, Program, Unit, elements

CODE = "bad-program"
CONSTANT = "tensor.constant"


def check_program(program: Program) -> None:
    """Raise one `CompileError` that lists every inconsistency of the program, or return."""
    found = Collector()
    mesh = _mesh(program.device)
    for config in program.configs:
        _Config(config, found, mesh).check()
    _check_regions(program, found)
    _check_launches(program, found)
    found.raise_if_any()


def check_config(config: Config) -> None:
    """`check_program` for one config alone."""
    found = Collector()
    _Config(config, found).check()
    found.raise_if_any()


def moving(loops: Sequence[Loop]) -> tuple[Loop, ...]:
    """Loops that run more than once and advance the tile."""
    return tuple(x for x in loops if x.count > 1 and x.dim >= 0)


def source_sites(stream: Stream, sites: int) -> tuple[int, ...] | None:
    """For every destination site, the site of a PCU source that makes its tile: the same one when the counts agree,
    else the one at the same place among the space loops that move the tile. None when the counts do not fit."""
    if sites == stream.sites:
        return tuple(range(sites))
    if sites != prod(x.count for x in moving(stream.space)):
        return None
    found = np.zeros(stream.sites, np.int64)
    at = geometry.indices(stream.space)
    for d, loop in enumerate(stream.space):
        if loop.count > 1 and loop.dim >= 0:
            found = found * loop.count + at[:, d]
    return tuple(int(x) for x in found)


class _Config:
    """Checks of one config."""

    def __init__(self, config: Config, found: Collector, mesh: tuple[int, int] | None = None) -> None:
        self.config = config
        self.mesh = mesh
        self.found = found
        self.into: list[list[Flow]] = [[] for _ in config.units]
        self.out_of: list[list[Flow]] = [[] for _ in config.units]
        self.sound = True
        for i, flow in enumerate(config.flows):
            if not (0 <= flow.src < len(config.units) and 0 <= flow.dst < len(config.units)):
                self.bad(f"flow {i} joins units {flow.src} and {flow.dst} of {len(config.units)}")
                continue
            self.out_of[flow.src].append(flow)
            self.into[flow.dst].append(flow)

    def bad(self, what: str, unit: Unit | None = None, why: str = "") -> None:
        self.sound = False
        location = unit.location if isinstance(unit, Pcu | Pmu | Agcu) else ""
        self.found.add(CODE, f"config '{self.config.name}': {what}", why=why, location=location)

    def name(self, flow: Flow) -> str:
        src, dst = self.config.units[flow.src], self.config.units[flow.dst]
        return f"flow '{src.name}':{flow.src_port} -> '{dst.name}':{flow.dst_port}"

    def check(self) -> None:
        if not self.sound:
            return
        for index, unit in enumerate(self.config.units):
            self.check_unit(index, unit)
        for flow in self.config.flows:
            self.check_flow(flow)
        if not self.sound:  # the rules below read what the ones above establish
            return
        for index, unit in enumerate(self.config.units):
            if isinstance(unit, Pcu) or (isinstance(unit, Agcu) and unit.direction in ("gather", "scatter")):
                self.check_domain(index, unit)
            elif isinstance(unit, Pmu):
                self.check_frames(index, unit)
        if not self.sound:
            return
        for index, unit in enumerate(self.config.units):
            if isinstance(unit, Pmu):
                self.check_cells(index, unit)
            elif isinstance(unit, Agcu) and unit.direction == "store":
                self.check_writers(unit.name, unit, self.into[index], elements(self.param_shape(unit)))
        for flow in self.config.flows:
            self.check_pairs(flow)
            if self.mesh is not None and len(flow.starts):
                self.check_routes(flow, *self.mesh)

    def param_shape(self, unit: Agcu) -> tuple[int, ...]:
        return self.config.params[unit.param].type.shape

    # Units

    def check_unit(self, index: int, unit: Unit) -> None:
        if len(unit.sites) == 0 or np.ndim(unit.sites) != 2 or np.shape(unit.sites)[1] != 2:
            self.bad(f"unit '{unit.name}' has no sites", unit)
        elif len({(int(x), int(y)) for x, y in unit.sites}) != len(unit.sites):
            self.bad(f"unit '{unit.name}' uses a site twice", unit)
        incoming = Counter(f.dst_port for f in self.into[index])
        outgoing = Counter(f.src_port for f in self.out_of[index])
        match unit:
            case Pcu():
                self.ports(unit, "input", incoming, unit.inputs, once=True)
                self.ports(unit, "output", outgoing, len(unit.outputs), once=False)
                self.check_body(unit)
            case Pmu():
                self.ports(unit, "write", incoming, max(len(incoming), 1), once=True)
                self.ports(unit, "read", outgoing, max(len(outgoing), 1), once=True)
                if unit.dtype not in dtypes.BITS:
                    self.bad(f"buffer '{unit.name}' has unknown element type {unit.dtype}", unit)
                if unit.copies < 1 or unit.frames < 0 or min(unit.shape, default=1) < 1:
                    self.bad(
                        f"buffer '{unit.name}' has copies {unit.copies}, frames {unit.frames}, shape {unit.shape}", unit
                    )
                if unit.shape and not 0 <= unit.split_dim < len(unit.shape):
                    self.bad(f"buffer '{unit.name}' is split on dim {unit.split_dim} of {len(unit.shape)}", unit)
            case Agcu():
                ports = {"load": (0, 1), "store": (1, 0), "gather": (1, 1), "scatter": (2, 0)}.get(unit.direction)
                if ports is None:
                    self.bad(f"address generator '{unit.name}' has unknown direction '{unit.direction}'", unit)
                    return
                writes = max(len(incoming), 1) if unit.direction == "store" else ports[0]
                self.ports(unit, "input", incoming, writes, once=True)
                self.ports(unit, "output", outgoing, ports[1], once=False)
                if not 0 <= unit.param < len(self.config.params):
                    self.bad(
                        f"address generator '{unit.name}' names parameter {unit.param} of {len(self.config.params)}",
                        unit,
                    )
                    return
                direction = self.config.params[unit.param].direction
                wanted = ("in", "inout") if ports[1] else ("out", "inout")
                if direction not in wanted:
                    self.bad(
                        f"'{unit.name}' would {unit.direction} parameter {unit.param}, which is '{direction}'", unit
                    )

    def ports(self, unit: Unit, what: str, found: Counter[int], wanted: int, *, once: bool) -> None:
        for port in range(wanted):
            if found[port] == 0:
                self.bad(f"{what} port {port} of '{unit.name}' is not connected", unit)
            elif once and found[port] > 1:
                self.bad(f"{what} port {port} of '{unit.name}' has {found[port]} flows", unit)
        for port in sorted(found):
            if not 0 <= port < wanted:
                self.bad(f"'{unit.name}' has no {what} port {port} ({wanted} ports)", unit)

    def check_body(self, unit: Pcu) -> None:
        """Values are defined once and before use, and the recorded types are those that the ops give."""
        known = set(range(unit.inputs))
        if len(unit.types) < unit.inputs:
            self.bad(f"'{unit.name}' has {unit.inputs} inputs but {len(unit.types)} value types", unit)
            return
        for op in unit.ops:
            if not known.issuperset(op.operands):
                self.bad(f"{op.name} in '{unit.name}' uses a value before it is made", unit)
                return
            if any(r in known or not 0 <= r < len(unit.types) for r in op.results):
                self.bad(f"{op.name} in '{unit.name}' makes a value twice or one without a type", unit)
                return
            known.update(op.results)
            if op.name == CONSTANT:
                continue
            if not shapes.known(op.name):
                self.bad(f"'{unit.name}' has unknown op {op.name}", unit)
                continue
            try:
                types = shapes.infer(op.name, op.attrs, [unit.types[v] for v in op.operands])
            except (ShapeError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
                self.bad(f"{op.name} in '{unit.name}': {error}", unit)
                continue
            written = tuple(unit.types[v] for v in op.results)
            if types != written:
                self.bad(f"{op.name} in '{unit.name}' gives {_list(types)}, recorded as {_list(written)}", unit)
        if not known.issuperset(unit.outputs):
            self.bad(f"'{unit.name}' sends a value that it does not make", unit)

    # Flows

    def check_flow(self, flow: Flow) -> None:
        src, dst = self.config.units[flow.src], self.config.units[flow.dst]
        stream, name = flow.stream, self.name(flow)
        if stream.dtype not in dtypes.BITS or min(stream.tile, default=1) < 1:
            self.bad(f"{name} carries tile {stream.tile} of {stream.dtype}", src)
            return
        for loop in stream.loops:
            if (
                loop.count < 1
                or not -1 <= loop.dim < len(stream.tile)
                or (loop.dim >= 0 and loop.count > 1 and loop.step < 1)
            ):
                self.bad(f"{name} has loop {loop} over a tile of {len(stream.tile)} dims", src)
                return
        if flow.credits < 1:
            self.bad(f"{name} has {flow.credits} credits", src)
        for unit, port, view, sends in (
            (src, flow.src_port, flow.src_view, True),
            (dst, flow.dst_port, flow.dst_view, False),
        ):
            self.check_end(flow, unit, port, view, sends)
        pairs, starts = np.asarray(flow.pairs), np.asarray(flow.starts)
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            self.bad(f"{name} has a pair table of shape {pairs.shape}", src)
        elif len(pairs) and not (
            (pairs >= 0).all() and (pairs[:, 0] < len(src.sites)).all() and (pairs[:, 1] < len(dst.sites)).all()
        ):
            self.bad(f"{name} pairs sites that its units do not have", src)
        if len(starts) and (
            len(starts) != len(pairs) + 1
            or starts[0] != 0
            or starts[-1] != len(flow.links)
            or (np.diff(starts) < 0).any()
        ):
            self.bad(f"{name} has a broken route table", src)

    def check_end(self, flow: Flow, unit: Unit, port: int, view: View | None, sends: bool) -> None:
        stream, name = flow.stream, self.name(flow)
        if isinstance(unit, Pcu):
            if view is not None:
                self.bad(f"{name} has an address program at a compute unit", unit)
            values = unit.outputs if sends else range(unit.inputs)
            if not 0 <= port < len(values):
                return  # reported with the ports
            type = unit.types[values[port]]
            if (stream.tile, stream.dtype) != (type.shape, type.dtype):
                self.bad(f"{name} carries tiles {stream.tile} of {stream.dtype} but the port has {type}", unit)
            if sends:
                if source_sites(stream, len(unit.sites)) is None:
                    self.bad(f"{name} spreads over {stream.sites} sites but '{unit.name}' has {len(unit.sites)}", unit)
                if any(x.dim < 0 and x.count > 1 for x in stream.time):
                    self.bad(f"{name} repeats a tile that '{unit.name}' makes once", unit)
            elif len(unit.sites) != stream.sites:
                self.bad(f"{name} spreads over {stream.sites} sites but '{unit.name}' has {len(unit.sites)}", unit)
            return
        shape, dtype = (unit.shape, unit.dtype) if isinstance(unit, Pmu) else self.config.params[unit.param].type
        if isinstance(unit, Agcu) and unit.direction in ("gather", "scatter"):
            self.check_indexed(flow, unit, port, sends)
            return
        if stream.dtype != dtype:
            self.bad(f"{name} carries {stream.dtype} but '{unit.name}' holds {dtype}", unit)
        if view is None or len(view.strides) != len(stream.tile):
            self.bad(f"{name} has no address program of {len(stream.tile)} dims at '{unit.name}'", unit)
            return
        low, high = view.bounds(stream.full_shape)
        if low < 0 or high >= elements(shape):
            self.bad(f"{name} touches addresses {low} to {high} of '{unit.name}', which holds {elements(shape)}", unit)

    def check_indexed(self, flow: Flow, unit: Agcu, port: int, sends: bool) -> None:
        """Gather and scatter: indices on port 0, rows on the other port, tiles in order."""
        stream, name = flow.stream, self.name(flow)
        type = self.config.params[unit.param].type
        if not sends and port == 0:
            if stream.dtype not in ("i32", "i64", "ui32", "ui8", "i8", "i16", "ui16"):
                self.bad(f"{name} carries {stream.dtype} as row indices", unit)
            return
        row = type.shape[1:]
        if stream.dtype != type.dtype or (row and stream.full_shape[-len(row) :] != row):
            self.bad(f"{name} carries {stream.full_shape} of {stream.dtype}, not rows {row} of {type.dtype}", unit)

    # Compute units

    def check_domain(self, index: int, unit: Pcu | Agcu) -> None:
        """Every port takes one tile a step, so the loop counts agree."""
        flows = [*self.into[index], *self.out_of[index]]
        counts = {tuple(x.count for x in f.stream.time if x.count > 1) for f in flows}
        if len(counts) > 1:
            self.bad(f"ports of '{unit.name}' step through different loops: {sorted(counts)}", unit)

    # Buffers

    def check_frames(self, index: int, unit: Pmu) -> None:
        flows = [*self.into[index], *self.out_of[index]]
        signatures: dict[tuple[tuple[int, int], ...], str] = {}
        for flow, view in [(f, f.dst_view) for f in self.into[index]] + [(f, f.src_view) for f in self.out_of[index]]:
            assert view is not None
            loops = flow.stream.time[: unit.frames]
            if len(loops) < unit.frames:
                self.bad(
                    f"{self.name(flow)} has {len(loops)} loops but '{unit.name}' has {unit.frames} frame loops", unit
                )
                return
            strides = tuple((x.count, x.step * view.strides[x.dim] if x.dim >= 0 and x.count > 1 else 0) for x in loops)
            signatures.setdefault(strides, self.name(flow))
        if len(signatures) > 1:
            told = "; ".join(f"{name}: {list(s)}" for s, name in signatures.items())
            self.bad(f"flows of '{unit.name}' disagree on its frames (count, address stride): {told}", unit)
        if unit.kept:
            frames = max((prod(x.count for x in f.stream.time[: unit.frames]) for f in self.into[index]), default=1)
            if frames > unit.copies:
                self.bad(f"'{unit.name}' keeps {unit.copies} of {frames} frames", unit)
            for loader in {f.src for f in self.into[index]}:
                ends = [self.config.units[f.dst] for f in self.out_of[loader]]
                if not all(isinstance(end, Pmu) and end.kept for end in ends):
                    self.bad(f"'{self.config.units[loader].name}' fills memories once and others in each run", unit)
        if len({(f.src, f.src_port, f.dst, f.dst_port) for f in flows}) != len(flows):
            self.bad(f"'{unit.name}' has a flow twice", unit)

    def check_writers(self, name: str, unit: Unit, flows: Sequence[Flow], size: int) -> np.ndarray | None:
        """Nobody writes a cell twice. Returns the written cells, or None when one writer writes them all."""
        seen: np.ndarray | None = None
        for flow in flows:
            view, stream = flow.dst_view, flow.stream
            assert view is not None
            parts = [*geometry.tile_terms(stream, view), *geometry.loop_terms(stream.loops, view)]
            terms, offset = geometry.normal(parts, view.offset)
            if not geometry.injective(terms) or geometry.size(terms) != prod(stream.tile) * prod(
                x.count for x in moving(stream.loops)
            ):
                self.bad(f"{self.name(flow)} writes a cell of '{name}' twice", unit)
                return None
            if len(flows) == 1 and geometry.covers(terms, offset, size):
                return None
            mask = np.zeros(size, np.bool_)
            geometry.mark(mask, terms, offset)
            if seen is None:
                seen = mask
            elif (seen & mask).any():
                self.bad(f"two flows write a cell of '{name}'", unit)
                return None
            else:
                seen |= mask
        return seen

    def check_cells(self, index: int, unit: Pmu) -> None:
        """What a frame reads is what the same frame wrote, or cells that no frame writes."""
        size = elements(unit.shape)
        sound = self.sound
        total = self.check_writers(unit.name, unit, self.into[index], size)
        if not self.sound and sound:
            return
        if total is None and unit.frames == 0:
            return
        frame = [_frame(f.stream, f.dst_view, unit.frames) for f in self.into[index]]
        written: np.ndarray | None = None
        for flow in self.out_of[index]:
            read = _frame(flow.stream, flow.src_view, unit.frames)
            if len(frame) == 1 and read == frame[0]:
                continue
            if written is None:
                written = np.zeros(size, np.bool_)
                for terms, offset in frame:
                    geometry.mark(written, terms, offset)
            cells = np.zeros(size, np.bool_)
            geometry.mark(cells, *read)
            missing = np.flatnonzero(cells & ~written)
            if not len(missing) or flow.src_view is None:
                continue
            shifts = geometry.shifts(flow.stream.time[: unit.frames], flow.src_view)
            clash = total is None or any(total[missing + s].any() for s in shifts)
            if clash:
                self.bad(f"{self.name(flow)} reads cells of '{unit.name}' that its frame has not written", unit)

    # Sites

    def check_pairs(self, flow: Flow) -> None:
        src, dst = self.config.units[flow.src], self.config.units[flow.dst]
        found = [(int(a), int(b)) for a, b in flow.pairs]
        if len(set(found)) != len(found):
            self.bad(f"{self.name(flow)} lists a pair of sites twice", src)
        have = set(found)
        wanted: set[tuple[int, int]]
        if isinstance(src, Pcu) and isinstance(dst, Pcu):
            wanted = {(a, b) for b, a in enumerate(source_sites(flow.stream, len(src.sites)) or ())}
        elif isinstance(src, Pcu) or isinstance(dst, Pcu):
            unit, view = (dst, flow.dst_view) if isinstance(src, Pcu) else (src, flow.src_view)
            if isinstance(src, Pcu):
                places = _first_places(source_sites(flow.stream, len(src.sites)) or ())
            else:
                places = tuple(range(flow.stream.sites))
            if isinstance(unit, Agcu):  # any site of an address generator reaches all addresses
                side = 0 if isinstance(src, Pcu) else 1
                self.require(flow, src, set(range(len(places))), {pair[side] for pair in have})
                return
            assert isinstance(unit, Pmu) and view is not None
            at = geometry.shifts(flow.stream.space, view)
            terms = (*geometry.tile_terms(flow.stream, view), *geometry.loop_terms(flow.stream.time, view))
            wanted = set()
            for site, place in enumerate(places):
                for owner in geometry.owners(
                    terms, view.offset + int(at[place]), unit.shape, unit.split_dim, len(unit.sites)
                ):
                    wanted.add((site, owner) if isinstance(src, Pcu) else (owner, site))
        elif isinstance(src, Agcu) or isinstance(dst, Agcu):
            for side, unit, view in ((0, src, flow.src_view), (1, dst, flow.dst_view)):
                if isinstance(unit, Pmu):
                    self.require(flow, src, set(self.owners(unit, flow.stream, view)), {pair[side] for pair in have})
                elif not have:
                    self.require(flow, src, {0}, set())
            return
        else:
            assert flow.src_view is not None and flow.dst_view is not None
            a = geometry.owner_of(_all(flow.stream, flow.src_view), src.shape, src.split_dim, len(src.sites))
            b = geometry.owner_of(_all(flow.stream, flow.dst_view), dst.shape, dst.split_dim, len(dst.sites))
            both = np.unique(a * len(dst.sites) + b)
            wanted = {(int(x) // len(dst.sites), int(x) % len(dst.sites)) for x in both}
        if have != wanted:
            self.differ(flow, src, sorted(wanted - have), sorted(have - wanted))

    def check_routes(self, flow: Flow, columns: int, rows: int) -> None:
        """The links of every pair are a path from its source's switch to its destination's. Link 4·(y·columns + x) + d
        leaves switch (x, y) to the east, west, south or north for d = 0, 1, 2, 3."""
        src, dst = self.config.units[flow.src], self.config.units[flow.dst]
        links, starts = np.asarray(flow.links, np.int64), np.asarray(flow.starts, np.int64)
        if len(links) and (links.min() < 0 or links.max() >= 4 * columns * rows):
            self.bad(f"{self.name(flow)} names links that the {columns}x{rows} mesh does not have", src)
            return
        x, y, way = links // 4 % columns, links // 4 // columns, links % 4
        x, y = x + np.array([1, -1, 0, 0])[way], y + np.array([0, 0, 1, -1])[way]
        if ((x < 0) | (x >= columns) | (y < 0) | (y >= rows)).any():
            self.bad(f"{self.name(flow)} leaves the {columns}x{rows} mesh", src)
            return
        at = np.asarray(src.sites, np.int64)[flow.pairs[:, 0]]
        goal = np.asarray(dst.sites, np.int64)[flow.pairs[:, 1]]
        first, last = at[:, 1] * columns + at[:, 0], goal[:, 1] * columns + goal[:, 0]
        ends = y * columns + x
        expected = np.concatenate([[0], ends])[:-1] if len(links) else np.zeros(0, np.int64)
        used = np.diff(starts) > 0
        expected[starts[:-1][used]] = first[used]  # a path starts at its source, then where the link before ended
        broken = links // 4 != expected
        arrive = first.copy()
        arrive[used] = ends[starts[1:][used] - 1]
        wrong = np.flatnonzero(arrive != last).tolist()
        if len(links):
            pair_of = np.repeat(np.arange(len(flow.pairs)), np.diff(starts))
            wrong = sorted({*wrong, *pair_of[broken].tolist()})
        if wrong:
            told = ", ".join(f"{tuple(at[i].tolist())} to {tuple(goal[i].tolist())}" for i in wrong[:4])
            self.bad(f"{self.name(flow)}: the links of pairs {told} are no path between their switches", src)

    def owners(self, unit: Pmu, stream: Stream, view: View | None) -> tuple[int, ...]:
        assert view is not None
        terms = (*geometry.tile_terms(stream, view), *geometry.loop_terms(stream.loops, view))
        return geometry.owners(terms, view.offset, unit.shape, unit.split_dim, len(unit.sites))

    def require(self, flow: Flow, unit: Unit, wanted: set[int], have: set[int]) -> None:
        if wanted != have:
            self.differ(flow, unit, sorted(wanted - have), sorted(have - wanted))

    def differ(self, flow: Flow, unit: Unit, missing: Sequence[object], extra: Sequence[object]) -> None:
        told = [f"{what} {list(sites[:4])}{' …' if len(sites) > 4 else ''}"
                for what, sites in (("lacks", missing), ("has needless", extra)) if sites]  # fmt: skip
        self.bad(
            f"{self.name(flow)} does not reach the sites that its addresses need: {', '.join(told)}",
            unit,
            why="pairs of (source site, destination site) follow from the address program and the split of the buffer",
        )


def _mesh(device: Mapping[str, Any]) -> tuple[int, int] | None:
    """Columns and rows of the device's mesh of switches: the unit columns and an edge column on each side."""
    grid = device.get("grid")
    if not isinstance(grid, Mapping):
        return None
    found = cast("Mapping[str, Any]", grid)
    if not all(isinstance(found.get(k), int) for k in ("columns", "rows")):
        return None
    return found["columns"] + 2, found["rows"]


def _list(types: Sequence[object]) -> str:
    return ", ".join(map(str, types))


def _first_places(sources: Sequence[int]) -> tuple[int, ...]:
    """For every source site, the first place in the space loops that it fills."""
    found: dict[int, int] = {}
    for place, source in enumerate(sources):
        found.setdefault(source, place)
    return tuple(found[source] for source in sorted(found))


def _frame(stream: Stream, view: View | None, frames: int) -> tuple[geometry.Terms, int]:
    """Addresses of the first frame."""
    assert view is not None
    loops = (*stream.time[frames:], *stream.space)
    return geometry.normal([*geometry.tile_terms(stream, view), *geometry.loop_terms(loops, view)], view.offset)


def _all(stream: Stream, view: View) -> np.ndarray:
    """The address of every element of the denoted tensor."""
    return geometry.addresses(list(zip(stream.full_shape, view.strides, strict=True)), view.offset)


# Program


def _check_regions(program: Program, found: Collector) -> None:
    """Region types are known, and regions that live at the same time do not overlap."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for i, launch in enumerate(program.launches):
        for region, _ in launch.args:
            first.setdefault(region, i)
            last[region] = i
    spans: dict[str, list[tuple[int, int, int, int, int]]] = {}
    end = len(program.launches)
    for i, region in enumerate(program.regions):
        if region.type.dtype not in dtypes.BITS or min(region.type.shape, default=1) < 0:
            found.add(CODE, f"region '{region.name}' has type {region.type}")
            continue
        if region.kind not in ("input", "output", "weight", "state", "temp"):
            found.add(CODE, f"region '{region.name}' has unknown kind '{region.kind}'")
        if region.kind == "weight" and not region.key:
            found.add(CODE, f"weight region '{region.name}' has no key")
        lives = {
            "input": (-1, last.get(i, -1)),
            "output": (first.get(i, end), end),
            "temp": (first.get(i, 0), last.get(i, -1)),
        }.get(region.kind, (-1, end))
        size = region.runs * region.type.elements * dtypes.byte_size(region.type.dtype)
        if size and lives[0] <= lives[1]:
            spans.setdefault(region.memory, []).append((region.address, region.address + size, *lives, i))
    for memory, regions in spans.items():
        active: list[tuple[int, int, int, int, int]] = []
        for span in sorted(regions):
            active = [x for x in active if x[1] > span[0]]
            for other in active:
                if other[2] <= span[3] and span[2] <= other[3]:
                    a, b = program.regions[other[4]].name, program.regions[span[4]].name
                    found.add(
                        CODE, f"regions '{a}' and '{b}' overlap in {memory} at address {span[0]} while both are live"
                    )
            active.append(span)


def _check_launches(program: Program, found: Collector) -> None:
    """Arguments lie within their regions and have the parameter's type; nothing is read before it is written."""
    ready = {i for i, r in enumerate(program.regions) if r.kind in ("input", "weight", "state")}
    for i, launch in enumerate(program.launches):
        if not 0 <= launch.config < len(program.configs):
            found.add(
                CODE, f"launch {i} names config {launch.config} of {len(program.configs)}", location=launch.location
            )
            continue
        config = program.configs[launch.config]
        what = f"launch {i} of '{config.name}'"
        if len(launch.args) != len(config.params):
            found.add(CODE, f"{what} gives {len(launch.args)} arguments for {len(config.params)} parameters",
                      location=launch.location)  # fmt: skip
            continue
        written: list[int] = []
        for param, (index, offset) in zip(config.params, launch.args, strict=True):
            if not 0 <= index < len(program.regions):
                found.add(CODE, f"{what} names region {index} of {len(program.regions)}", location=launch.location)
                continue
            region = program.regions[index]
            if param.type.dtype != region.type.dtype:
                found.add(CODE, f"{what}: '{param.name}' is {param.type.dtype} but region '{region.name}' holds "
                          f"{region.type.dtype}", location=launch.location)  # fmt: skip
            if offset < 0 or offset + param.type.elements > region.type.elements:
                found.add(CODE, f"{what}: '{param.name}' takes {param.type.elements} elements from {offset} of region "
                          f"'{region.name}', which has {region.type.elements}", location=launch.location)  # fmt: skip
            if param.direction != "in":
                written.append(index)
                if region.kind in ("input", "weight"):
                    found.add(CODE, f"{what} writes {region.kind} '{region.name}'", location=launch.location)
            elif index not in ready:
                found.add(CODE, f"{what} reads region '{region.name}' before any launch has written it",
                          location=launch.location)  # fmt: skip
        ready.update(written)
    _check_loops(program, found)
    _check_runs(program, found)
    for name, times in Counter(p.name for p in program.inputs).items():
        if times > 1:
            found.add(CODE, f"input '{name}' is named {times} times")
    for what, ports in (("input", program.inputs), ("output", program.outputs)):
        for port in ports:
            if not 0 <= port.region < len(program.regions):
                found.add(CODE, f"{what} '{port.name}' names region {port.region} of {len(program.regions)}")
                continue
            region = program.regions[port.region]
            fits = port.offset >= 0 and port.offset + port.type.elements <= region.type.elements
            if not fits or port.type.dtype != region.type.dtype:
                found.add(
                    CODE, f"{what} '{port.name}' of {port.type} does not fit region '{region.name}' of {region.type}"
                )
            if what == "output" and port.region not in ready:
                found.add(CODE, f"output '{port.name}' is in region '{region.name}', which nothing writes")
    inputs, outputs = {p.name: p for p in program.inputs}, {p.name: p for p in program.outputs}
    _check_mesh(program, inputs | outputs, found)
    for past, present in program.states:
        a, b = inputs.get(past), outputs.get(present)
        if a is None or b is None:
            found.add(CODE, f"state '{past}' = '{present}' is not an input and an output")
        elif a.type != b.type:
            found.add(CODE, f"state '{past}' is {a.type} but '{present}' is {b.type}")


def _check_mesh(program: Program, ports: Mapping[str, Port], found: Collector) -> None:
    """Axes have sizes, and ports are cut over axes that are there, once each."""
    for axis, size in program.mesh.items():
        if size < 1:
            found.add(CODE, f"axis '{axis}' of the mesh has {size} sockets")
    for name, dims in program.shardings.items():
        if name not in ports:
            found.add(CODE, f"'{name}' is cut over the mesh and is no port")
        elif len(dims) != len(ports[name].type.shape):
            found.add(CODE, f"port '{name}' of {ports[name].type} is cut as if it had {len(dims)} dims")
        over = [axis for dim in dims for axis in dim]
        if len(set(over)) < len(over) or not program.mesh.keys() >= set(over):
            found.add(CODE, f"port '{name}' is cut over axes {over} of a mesh of {list(program.mesh)}")
    for config in program.configs:
        for unit in config.units:
            for op in unit.ops if isinstance(unit, Pcu) else ():
                if op.name in COMMUNICATING | PER_SOCKET and not _divides(op.attrs, program.sockets):
                    found.add(CODE, f"{op.name} is over groups that do not divide {program.sockets} sockets",
                              location=op.location)  # fmt: skip
    for name, names in program.stacks.items():
        if name not in ports or len(set(names)) != program.mesh.get("pp", 1):
            found.add(CODE, f"'{name}' stands for {list(names)} on a mesh of {dict(program.mesh)}")
    for past, present in program.states:
        if program.shardings.get(past) != program.shardings.get(present):
            found.add(CODE, f"state '{past}' and '{present}' are cut in different ways")


def _check_runs(program: Program, found: Collector) -> None:
    """All launches have as many runs, and so have regions that differ from run to run: what is written is one of them.
    What is kept from run to run is loaded from regions that are the same for all."""
    runs = program.runs
    if runs > 1 and program.states:
        found.add(CODE, f"{runs} runs at a time share state '{program.states[0][0]}'")
    for region in program.regions:
        if region.runs not in (1, runs) or (region.runs > 1 and region.kind in ("weight", "state")):
            found.add(CODE, f"{region.kind} '{region.name}' has {region.runs} tensors, the program {runs} runs")
    for i, launch in enumerate(program.launches):
        if launch.runs != runs:
            found.add(CODE, f"launch {i} has {launch.runs} runs, others {runs}", location=launch.location)
        if not 0 <= launch.config < len(program.configs):
            continue
        config = program.configs[launch.config]
        many = {p: program.regions[r].runs > 1 for p, (r, _) in enumerate(launch.args) if r < len(program.regions)}
        for p, param in enumerate(config.params):
            if runs > 1 and param.direction != "in" and not many.get(p, True):
                found.add(CODE, f"launch {i}: all runs write '{param.name}' in one place", location=launch.location)
        for flow in config.flows:
            if not (0 <= flow.src < len(config.units) and 0 <= flow.dst < len(config.units)):
                continue  # told with the flow
            source, target = config.units[flow.src], config.units[flow.dst]
            if not isinstance(target, Pmu) or not target.kept:
                continue
            if not isinstance(source, Agcu) or source.direction != "load" or many.get(source.param, False):
                found.add(
                    CODE,
                    f"launch {i}: '{target.name}' keeps what '{source.name}' sends, which differs from run to run",
                    location=launch.location,
                )


def _divides(attrs: Mapping[str, Any], sockets: int) -> bool:
    try:
        return group_of(attrs).divides(sockets)
    except (ShapeError, KeyError, TypeError):  # its shape rule says what is wrong
        return True


def _check_loops(program: Program, found: Collector) -> None:
    """Loops follow each other; every round launches the same configs, with parameters at a constant step."""
    end = 0
    for number, loop in enumerate(program.loops):
        what = f"loop {number}"
        if loop.first < end or loop.period < 1 or loop.times < 2 or loop.end > len(program.launches):
            found.add(CODE, f"{what} takes {loop.times} rounds of {loop.period} launches from launch {loop.first} of "
                      f"{len(program.launches)}")  # fmt: skip
            continue
        end = loop.end
        if any(launch.mode != "hw" for launch in program.launches[loop.first + 1 : loop.end]):
            found.add(CODE, f"{what}: the host launches more than the first")
        for i in range(loop.first, loop.first + loop.period):
            rounds = program.launches[i : loop.end : loop.period]
            if len({launch.config for launch in rounds}) > 1:
                found.add(CODE, f"{what}: rounds launch different configs", location=rounds[0].location)
                continue
            for param in range(min(len(launch.args) for launch in rounds)):
                at = [_begins(program, launch.args[param]) for launch in rounds]
                known = [one for one in at if one is not None]  # the others are reported with their launch or region
                steps = {b[1] - a[1] for a, b in pairwise(known)}
                if len(known) == len(at) and (len({memory for memory, _ in known}) > 1 or len(steps) > 1):
                    found.add(CODE, f"{what}: parameter {param} of launch {i} does not advance by a constant step",
                              location=rounds[0].location)  # fmt: skip


def _begins(program: Program, place: tuple[int, int]) -> tuple[str, int] | None:
    """Memory and byte of an element of a region; None when there is no such region, or its type is unknown."""
    if not 0 <= place[0] < len(program.regions):
        return None
    region = program.regions[place[0]]
    if region.type.dtype not in dtypes.BITS:
        return None
    return region.memory, region.address + place[1] * dtypes.byte_size(region.type.dtype)
