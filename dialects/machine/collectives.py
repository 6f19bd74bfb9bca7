"""Time of collectives between sockets: rounds of messages over the links of a node and the switches between nodes.

A group of sockets is given by `sizes` and `strides`: the coordinate of a socket on axis i is
socket // strides[i] % sizes[i], and those that agree on all other axes are one group. All groups communicate at once.
An algorithm is a sequence of rounds; in a round every socket sends messages of one size. The messages are laid on the
links (those between two neighbours of a node, which a torus takes along x and then y, and those of a device to the
switches, which carry anything between nodes at full rate), and a round takes

    message latency + max over the links of messages · (⌈bytes / burst⌉ · burst + header) / (bandwidth · efficiency)

where the latency of a message is that of its protocol, of every link on its way with an AGCU at each end, of the
switch, and, where messages are combined, of a pass through the body of a PCU. What a socket sends and takes also goes
through its AGCUs, whose bursts in flight cover the way there and back, and what it combines through one PCU; both can
be slower than the links. Tiles that follow each other overlap: the interval between them is what the busiest link takes
for all rounds of one. The cheapest algorithm is taken, and named.

Not modelled: messages that go around by way of a third socket, or inside a node by way of the switches; links that are
shared with another collective at the same time are left to who asks (`Collective.node`, `Collective.switch`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import ceil, prod
from typing import NamedTuple

from headrace.dialects.machine.device import Device
from headrace.dialects.machine.parts import Sockets
from headrace.dialects.support.diagnostics import CompileError

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute")
"""Collectives by name. Their bytes are those of what one socket puts in."""


class Collective(NamedTuple):
    """One collective of one tile on every socket of a group, in seconds.

    `seconds` is its time alone and `latency` that part of it which does not depend on its bytes; `node` and `switch`
    are what the busiest link of a node and the busiest link to a switch are taken for, `agcu` what the AGCUs are, and
    `combining` what one PCU is that combines what it gets. `sent` are the bytes that a socket sends (the most of any),
    `combined` the elements that it combines, in tiles of what it puts in; `rounds` how many messages follow each other.
    """

    algorithm: str
    rounds: int
    seconds: float
    latency: float
    node: float
    switch: float
    agcu: float
    combining: float
    sent: float
    combined: float

    @property
    def interval(self) -> float:
        """Seconds of the links from tile to tile when many follow each other."""
        return max(self.node, self.switch, self.agcu)

    def time(self, tiles: int, units: int = 1) -> float:
        """Seconds of `tiles` of them behind each other, on so many units at once."""
        return self.seconds + (tiles - 1) * max(self.interval, self.combining / units) if tiles else 0.0


NOTHING = Collective("none", 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""A collective of one socket."""


@dataclass(frozen=True)
class _Round:
    """Messages that are sent at once, `times` times in a row: (from, to) places in a group, each of `part` of the bytes
    that a socket puts in; the receiver combines them with what it has if `combines`."""

    part: float
    pairs: tuple[tuple[int, int], ...]
    combines: bool = False
    times: int = 1


@dataclass(frozen=True)
class _Plan:
    """An algorithm laid on the links. For each round its `part`, `times`, whether it combines, the most links and
    switches of a message's way, and the most messages that a socket sends or takes; and for every link that is used
    differently, how many messages it carries in each round, all `times` of it."""

    algorithm: str
    rounds: tuple[tuple[float, int, bool, int, int, int], ...]
    node: tuple[tuple[float, ...], ...]
    switch: tuple[tuple[float, ...], ...]
    sent: float
    combined: float


# Groups and links.


def members(socket: int, sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The sockets of the group of a socket, in order of their places."""
    first = socket - sum(socket // stride % size * stride for size, stride in zip(sizes, strides, strict=True))
    found = [first]
    for size, stride in zip(sizes, strides, strict=True):
        found = [at + i * stride for at in found for i in range(size)]
    return tuple(found)


def _extent(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """The fewest sockets, from 0 on, that hold whole groups."""
    return max((size * stride for size, stride in zip(sizes, strides, strict=True)), default=1)


def check_group(device: Device, sizes: Sequence[int], strides: Sequence[int]) -> None:
    """`CompileError` when the device has fewer sockets than the group spans."""
    extent, sockets = _extent(sizes, strides), device.sockets
    if prod(sizes) > 1 and extent > sockets.count:
        raise CompileError(
            "too-many-sockets",
            f"a group of sizes {list(sizes)} and strides {list(strides)} spans {extent} sockets; "
            f"'{device.name}' has {sockets.count}",
            why="sockets.count of the device file: most devices that work on one program",
            fix="take a smaller mesh, or a device file with more sockets",
        )


_Way = tuple[tuple[tuple[str, int, int], float], ...]
"""Links of a message's way, (kind, from, to), and the part of the message on each."""


def _way(sockets: Sockets, a: int, b: int) -> tuple[_Way, int, int]:
    """The links from a socket to another, and how many links and switches one after the other."""
    if a // sockets.node != b // sockets.node:
        return ((("switch", a, -1), 1.0), (("switch", -1, b), 1.0)), 2, 1
    if sockets.topology != "torus":
        return ((("node", a, b), 1.0),), 1, 0
    columns = sockets.columns
    rows, first = sockets.node // columns, a // sockets.node * sockets.node
    here, there = a - first, b - first
    found: list[tuple[tuple[str, int, int], float]] = []
    hops = 0
    for axis, size in enumerate((columns, rows)):  # along x, then y, the shorter way around, or both by halves
        x, y = here % columns, here // columns
        at, to = (x, there % columns) if axis == 0 else (y, there // columns)
        up, down = (to - at) % size, (at - to) % size
        for step, length in ((1, up), (-1, down)):
            if not length or length > min(up, down):
                continue
            for i in range(length):
                p, q = (at + step * i) % size, (at + step * (i + 1)) % size
                one, two = (y * columns + p, y * columns + q) if axis == 0 else (p * columns + x, q * columns + x)
                # two links join the sockets of a torus of two; `step` tells them apart
                found.append(((f"node{step}", first + one, first + two), 0.5 if up == down else 1.0))
        hops += min(up, down)
        here = y * columns + to if axis == 0 else there
    return tuple(found), hops, 0


def _laid(sockets: Sockets, name: str, rounds: Sequence[_Round], groups: Sequence[Sequence[int]]) -> _Plan:
    """An algorithm on the links of a device's sockets."""
    links: dict[tuple[str, int, int], list[float]] = {}
    facts: list[tuple[float, int, bool, int, int, int]] = []
    sent = combined = 0.0
    for number, one in enumerate(rounds):
        most_hops = most_switches = 0
        out, into = Counter(a for a, _ in one.pairs), Counter(b for _, b in one.pairs)
        for group in groups:
            for a, b in one.pairs:
                way, hops, switches = _way(sockets, group[a], group[b])
                most_hops, most_switches = max(most_hops, hops), max(most_switches, switches)
                for link, part in way:
                    links.setdefault(link, [0.0] * len(rounds))[number] += part * one.times
        most = max([0, *(out[x] + into[x] for x in {*out, *into})])
        facts.append((one.part, one.times, one.combines, most_hops, most_switches, most))
        sent += max(out.values(), default=0) * one.part * one.times
        combined += max(into.values(), default=0) * one.part * one.times if one.combines else 0.0
    node = {tuple(x) for (kind, *_), x in links.items() if kind.startswith("node")}
    switch = {tuple(x) for (kind, *_), x in links.items() if kind == "switch"}
    return _Plan(name, tuple(facts), tuple(sorted(node)), tuple(sorted(switch)), sent, combined)


# Algorithms: rounds of messages among n places. Parts are of what is put in where a collective begins.


def _each(n: int) -> tuple[tuple[int, int], ...]:
    return tuple((a, b) for a in range(n) for b in range(n) if a != b)


def _next(n: int) -> tuple[tuple[int, int], ...]:
    return tuple((a, (a + 1) % n) for a in range(n))


def _both(n: int) -> tuple[tuple[int, int], ...]:
    """To the next place and to the one before, half each."""
    return (*_next(n), *((a, (a - 1) % n) for a in range(n)))


def _partners(n: int, distance: int) -> tuple[tuple[int, int], ...]:
    return tuple((a, a ^ distance) for a in range(n))


def _is_power(n: int) -> bool:
    return n & (n - 1) == 0


def _scatter(n: int, part: float) -> Iterator[tuple[str, list[_Round]]]:
    """Of `part` of the bytes on each place, the n-th part of the sum to each."""
    yield "direct", [_Round(part / n, _each(n), True)]
    yield "ring", [_Round(part / n, _next(n), True, n - 1)]
    yield "ring both ways", [_Round(part / n / 2, _both(n), True, n - 1)]
    if _is_power(n):
        steps = range(n.bit_length() - 1)
        yield "halving", [_Round(part / 2 ** (i + 1), _partners(n, n >> (i + 1)), True) for i in steps]


def _gather(n: int, part: float) -> Iterator[tuple[str, list[_Round]]]:
    """`part` of the bytes of each place to all."""
    yield "direct", [_Round(part, _each(n))]
    yield "ring", [_Round(part, _next(n), False, n - 1)]
    yield "ring both ways", [_Round(part / 2, _both(n), False, n - 1)]
    if _is_power(n):
        yield "doubling", [_Round(part * 2**i, _partners(n, 2**i)) for i in range(n.bit_length() - 1)]


def _exchange(n: int, part: float) -> Iterator[tuple[str, list[_Round]]]:
    """The n-th part of `part` of the bytes of each place to each."""
    yield "direct", [_Round(part / n, _each(n))]
    shifts = [_Round(part / n, tuple((a, (a + i) % n) for a in range(n))) for i in range(1, n)]
    yield "pairwise", shifts
    if _is_power(n):
        steps = range(n.bit_length() - 1)
        yield "store and forward", [_Round(part / 2, tuple((a, (a + 2**i) % n) for a in range(n))) for i in steps]


def _sum(n: int, part: float) -> Iterator[tuple[str, list[_Round]]]:
    """The sum of `part` of the bytes of each place to all."""
    yield "one-shot", [_Round(part, _each(n), True)]
    if _is_power(n):
        yield "recursive doubling", [_Round(part, _partners(n, 2**i), True) for i in range(n.bit_length() - 1)]
    for (one, first), (two, second) in zip(_scatter(n, part), _gather(n, part / n), strict=True):
        name = {"direct": "two-shot", "halving": "halving-doubling"}.get(one, two)
        yield name, [*first, *second]


_FLAT: dict[str, Callable[[int, float], Iterator[tuple[str, list[_Round]]]]] = {
    "all_reduce": _sum,
    "all_gather": _gather,
    "reduce_scatter": _scatter,
    "all_to_all": _exchange,
}


def _levels(sockets: Sockets, group: Sequence[int]) -> list[tuple[int, ...]] | None:
    """Places of a group in blocks of sockets that are near each other: of one node, or of one row of a torus. None when
    there are not several blocks of several places, all of one size."""

    def near(socket: int) -> int:
        if len({x // sockets.node for x in group}) > 1:
            return socket // sockets.node
        return socket // sockets.columns if sockets.topology == "torus" else 0

    blocks: dict[int, list[int]] = {}
    for place, socket in enumerate(group):
        blocks.setdefault(near(socket), []).append(place)
    sizes = {len(block) for block in blocks.values()}
    return [tuple(b) for b in blocks.values()] if len(blocks) > 1 and len(sizes) == 1 and sizes != {1} else None


def _within(blocks: Sequence[Sequence[int]], rounds: Iterable[_Round]) -> list[_Round]:
    """Rounds among the places of one block, in every block at once."""
    return [
        _Round(x.part, tuple((b[i], b[j]) for b in blocks for i, j in x.pairs), x.combines, x.times) for x in rounds
    ]


def _hierarchical(op: str, blocks: Sequence[Sequence[int]]) -> Iterator[tuple[str, list[_Round]]]:
    """Algorithms that first work inside blocks and then across them, or the other way around."""
    across = list(zip(*blocks, strict=True))
    m, k = len(blocks[0]), len(blocks)

    def joined(
        inner: Iterator[tuple[str, list[_Round]]],
        outer: Callable[[], Iterator[tuple[str, list[_Round]]]],
        out_first: bool,
    ) -> Iterator[tuple[str, list[_Round]]]:
        for one, first in inner:
            for two, second in outer():
                here, there = _within(blocks, first), _within(across, second)
                yield f"hierarchical ({one}, {two})", [*there, *here] if out_first else [*here, *there]

    match op:
        case "reduce_scatter":
            yield from joined(_scatter(m, 1.0), lambda: _scatter(k, 1 / m), False)
        case "all_gather":
            yield from joined(_gather(m, float(k)), lambda: _gather(k, 1.0), True)
        case "all_to_all":
            yield from joined(_exchange(m, 1.0), lambda: _exchange(k, 1.0), False)
        case "all_reduce":
            for (one, first), (_, last) in zip(_scatter(m, 1.0), _gather(m, 1 / m), strict=True):
                for two, second in _sum(k, 1 / m):
                    rounds = [*_within(blocks, first), *_within(across, second), *_within(blocks, last)]
                    yield f"hierarchical ({one}, {two})", rounds
        case _:
            return


@cache
def _plans(sockets: Sockets, op: str, sizes: tuple[int, ...], strides: tuple[int, ...], by: int) -> tuple[_Plan, ...]:
    """The algorithms of a collective over all groups of a device's sockets that may share links."""
    extent, n = _extent(sizes, strides), prod(sizes)
    every = sockets.node if sockets.node % extent == 0 else extent
    groups = sorted({members(socket, sizes, strides) for socket in range(every)})
    if op == "permute":
        ways = [("direct", [_Round(1.0, tuple((a, (a + by) % n) for a in range(n)))])]
    else:
        ways = list(_FLAT[op](n, 1.0))
        blocks = [_levels(sockets, group) for group in groups]
        if blocks[0] is not None and all(x == blocks[0] for x in blocks):
            ways += _hierarchical(op, blocks[0])
    found = [_laid(sockets, name, rounds, groups) for name, rounds in ways]
    unlike: dict[tuple[object, ...], _Plan] = {}  # of two sockets a ring is direct, and so on: the simplest name
    for plan in found:
        unlike.setdefault((plan.rounds, plan.node, plan.switch), plan)
    return tuple(unlike.values())


# Time.


def message_seconds(device: Device, links: int = 1, switches: int = 0, *, combines: bool = False) -> float:
    """Seconds of a message over so many links and switches one after the other, its bytes apart: its protocol; each
    link with the AGCUs at its ends (where it goes through a switch, of the whole way); a pass through the body of a
    PCU where what it brings is combined."""
    sockets = device.sockets
    agcus = 2 * (links if not switches else 1)
    cycles = agcus * device.agcu.latency + (device.pcu.stages if combines else 0)
    return sockets.latency + links * sockets.link_latency + switches * sockets.switch_latency + cycles / device.clock


def peer_rate(device: Device) -> float:
    """Bytes per second that one AGCU passes to or from other sockets: its width, or its bursts in flight over the way
    to a neighbour and back."""
    agcu = device.agcu
    wait = 2 * message_seconds(device)
    return min(
        agcu.bytes_per_cycle * device.clock, agcu.outstanding * agcu.burst_bytes / wait if wait else float("inf")
    )


def link_bandwidths(device: Device) -> tuple[float, float]:
    """Achieved B/s, one direction, between two neighbours of a node, and of a device to the switches."""
    sockets = device.sockets
    side_by_side = 1.0
    if sockets.topology == "all-to-all":
        side_by_side = sockets.links / max(1, sockets.node - 1)
    elif sockets.topology == "torus":
        axes = sum(n > 1 for n in (sockets.columns, sockets.node // sockets.columns))
        side_by_side = sockets.links / max(1, 2 * axes)
    return side_by_side * sockets.link_bandwidth * sockets.efficiency, sockets.switch_bandwidth * sockets.efficiency


def _timed(device: Device, plan: _Plan, nbytes: float, elements: float, dtype: str) -> Collective:
    """A plan for `nbytes` on each socket, which are so many elements."""
    node, switch = link_bandwidths(device)
    burst, header = device.agcu.burst_bytes, device.sockets.header
    rate = device.count("agcu") * peer_rate(device)
    sizes = [ceil(part * nbytes / burst) * burst + header for part, *_ in plan.rounds]
    total = latency = agcu = 0.0
    loads: list[list[float]] = [[], []]
    for number, bandwidth in enumerate((node, switch)):
        for counts in (plan.node, plan.switch)[number]:
            loads[number].append(sum(n * size for n, size in zip(counts, sizes, strict=True)) / bandwidth)
    combining = device.pcu.lanes * device.simd_rate(dtype) * device.clock
    for i, (part, times, combines, hops, switches, most) in enumerate(plan.rounds):
        passed = most * part * nbytes / rate
        busiest = max(
            [
                *(counts[i] / times * sizes[i] / node for counts in plan.node),
                *(counts[i] / times * sizes[i] / switch for counts in plan.switch),
                passed,
                most / 2 * part * elements / combining if combines else 0.0,
            ]
        )
        message = message_seconds(device, hops, switches, combines=combines)
        total += times * (message + busiest)
        latency += times * message
        agcu += times * passed
    return Collective(
        plan.algorithm,
        sum(times for _, times, *_ in plan.rounds),
        total,
        latency,
        max(loads[0], default=0.0),
        max(loads[1], default=0.0),
        agcu,
        plan.combined * elements / combining,
        plan.sent * nbytes,
        plan.combined,
    )


@lru_cache(1 << 14)
def collectives(
    device: Device,
    op: str,
    elements: int,
    dtype: str,
    nbytes: int,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    by: int = 1,
) -> tuple[Collective, ...]:
    """A collective of `elements` in `nbytes` on each socket by every algorithm that there is, in no order.

    `CompileError` when the device has not so many sockets.
    """
    if op not in OPS:
        raise CompileError("no-such-collective", f"there is no collective '{op}'", why=f"known: {', '.join(OPS)}")
    n = prod(sizes)
    if n == 1 or not nbytes or (op == "permute" and by % n == 0):
        return (NOTHING,)
    check_group(device, sizes, strides)
    shift = by % n if op == "permute" else 0
    plans = _plans(device.sockets, op, tuple(sizes), tuple(strides), shift)
    return tuple(_timed(device, plan, nbytes, elements, dtype) for plan in plans)


def collective(
    device: Device,
    op: str,
    elements: int,
    dtype: str,
    nbytes: int,
    sizes: Sequence[int],
    strides: Sequence[int],
    *,
    by: int = 1,
    tiles: int = 1,
    units: int = 1,
) -> Collective:
    """The cheapest algorithm of a collective when `tiles` follow each other on so many units, each of `elements` in
    `nbytes` of what a socket puts in. `by`: how far a permute goes."""
    found = collectives(device, op, elements, dtype, nbytes, tuple(sizes), tuple(strides), by)
    return min(found, key=lambda x: x.time(tiles, units))


MOST_UNITS = 256
"""Most units among which `of_tensor` cuts a tensor."""


def of_tensor(
    device: Device, op: str, elements: int, dtype: str, nbytes: int, sizes: Sequence[int], strides: Sequence[int]
) -> tuple[float, Collective]:
    """Seconds of a collective of a whole tensor, `nbytes` on each socket, that is cut among as many units as is best
    (a power of two), and the collective of one of them."""
    best: tuple[float, Collective] | None = None
    units = 1
    while units <= min(MOST_UNITS, device.count("pcu"), max(1, elements)):
        part, size = -(-elements // units), -(-nbytes // units)
        found = collective(device, op, part, dtype, size, sizes, strides, tiles=units, units=units)
        if best is None or found.time(units, units) < best[0]:
            best = found.time(units, units), found
        units *= 2
    assert best is not None
    return best
