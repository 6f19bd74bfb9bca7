"""Time of collectives: bounds that no algorithm beats, answers computed by hand, published rates."""

from __future__ import annotations

from itertools import pairwise

import pytest

from headrace.dialects.machine.collectives import (
    OPS,
    Collective,
    collective,
    collectives,
    link_bandwidths,
    members,
    message_seconds,
    of_tensor,
    peer_rate,
)
from headrace.dialects.machine.device import Device, load_device
from headrace.dialects.support.diagnostics import CompileError

SN50, SN40L, SN10 = (load_device(name) for name in ("sn50", "sn40l", "sn10"))
GROUPS = {
    "sn50": [((8,), (1,)), ((2,), (1,)), ((4,), (2,)), ((16,), (1,)), ((2,), (8,)), ((2, 8), (8, 1)), ((6,), (1,))],
    "sn40l": [((16,), (1,)), ((8,), (1,)), ((4,), (4,))],
    "sn10": [((8,), (1,)), ((4,), (1,)), ((2,), (4,)), ((4,), (2,)), ((2, 2), (4, 1))],
}
CASES = [(load_device(name), *group) for name, groups in GROUPS.items() for group in groups]


def one(device: Device, op: str, nbytes: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> Collective:
    return collective(device, op, nbytes // 2, "bf16", nbytes, sizes, strides)


def least_sent(op: str, n: int) -> float:
    """What a socket cannot help sending, in tiles of what it puts in."""
    return {"all_reduce": 2 * (n - 1) / n, "all_gather": 1.0, "permute": 1.0}.get(op, (n - 1) / n)


def ways(device: Device, sizes: tuple[int, ...], strides: tuple[int, ...]) -> float:
    """B/s, one direction, of all links of a socket together."""
    node, switch = link_bandwidths(device)
    links = {"all-to-all": device.sockets.node - 1, "torus": 4}[device.sockets.topology]
    return links * node + switch


@pytest.mark.parametrize(("device", "sizes", "strides"), CASES)
@pytest.mark.parametrize("op", OPS)
def test_no_algorithm_beats_the_links_or_the_latency(
    device: Device, sizes: tuple[int, ...], strides: tuple[int, ...], op: str
) -> None:
    n = 1
    for size in sizes:
        n *= size
    for nbytes in (2, 4096, 1 << 20, 1 << 28):
        for found in collectives(device, op, nbytes // 2, "bf16", nbytes, sizes, strides):
            assert found.sent >= least_sent(op, n) * nbytes * (1 - 1e-9)
            received = {"all_gather": n - 1.0}.get(op, least_sent(op, n)) * nbytes
            assert found.seconds >= max(found.sent, received) / ways(device, sizes, strides)
            assert found.seconds >= found.rounds * message_seconds(device)
            assert found.seconds >= found.interval > 0
            assert found.interval >= max(found.sent, received) / ways(device, sizes, strides) * (1 - 1e-9)


@pytest.mark.parametrize(("device", "sizes", "strides"), CASES)
@pytest.mark.parametrize("op", OPS)
def test_more_bytes_never_take_less(device: Device, sizes: tuple[int, ...], strides: tuple[int, ...], op: str) -> None:
    times = [one(device, op, 1 << i, sizes, strides).seconds for i in range(1, 31)]
    assert all(a <= b for a, b in pairwise(times))
    tiled = [one(device, op, 1 << 16, sizes, strides).time(n) for n in range(6)]
    assert tiled[0] == 0 and all(a < b for a, b in pairwise(tiled))


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_more_sockets_around_a_ring_never_take_less(op: str) -> None:
    """In a full mesh they may: a larger group has more links."""

    def ring(n: int) -> Device:
        return SN50.with_values(
            sockets__topology="torus", sockets__node=n, sockets__columns=n, sockets__links=2, sockets__count=n
        )

    times = [one(ring(n), op, 1 << 20, (n,), (1,)).seconds for n in (2, 4, 8, 16, 32, 64)]
    assert all(a <= b for a, b in pairwise(times))


def test_a_reduce_scatter_over_a_node_takes_what_was_published() -> None:
    """CS149 F2025 L12, SN50: bf16, 16 x 24576 x 8192 results, 8 sockets: 8.6 ms, which is 7/8 of 6.44 GB over seven
    links of 94 GB/s."""
    elements = 16 * 24576 * 8192
    seconds, _ = of_tensor(SN50, "reduce_scatter", elements, "bf16", 2 * elements, (8,), (1,))
    assert seconds == pytest.approx(7 / 8 * 2 * elements / (7 * 94e9), rel=0.02)
    assert seconds == pytest.approx(8.6e-3, rel=0.02)


def test_long_sums_around_a_ring_take_it_both_ways() -> None:
    ring = SN50.with_values(
        sockets__topology="torus", sockets__node=6, sockets__columns=6, sockets__links=2, sockets__count=6
    )
    nbytes = 6 << 20
    found = one(ring, "all_reduce", nbytes, (6,), (1,))
    assert found.algorithm == "ring both ways"
    assert found.interval == pytest.approx(2 * 5 / 6 * nbytes / 2 / 94e9, rel=1e-3)


def test_small_messages_go_the_shortest_way_and_large_ones_the_widest() -> None:
    names = [one(SN50, "all_reduce", nbytes, (8,), (1,)).algorithm for nbytes in (4096, 1 << 24)]
    assert names == ["one-shot", "two-shot"]


def test_a_message_by_hand() -> None:
    device = load_device("test/dialects/machine/data/tiny.toml").with_values(
        sockets__header=10, sockets__link_latency=2e-6, agcu__outstanding=1 << 30, agcu__bytes_per_cycle=1 << 20
    )
    found = one(device, "all_gather", 1000, (2,), (1,))
    burst = device.agcu.burst_bytes
    sent = (-(-1000 // burst) * burst + 10) / 1e9
    assert found.seconds == pytest.approx(1e-6 + 2e-6 + 2 * device.agcu.latency / device.clock + sent)
    assert (found.node, found.switch, found.rounds, found.sent) == (pytest.approx(sent), 0.0, 1, 1000)
    assert found.time(3) == pytest.approx(found.seconds + 2 * sent)


def test_between_nodes_messages_go_through_switches() -> None:
    near, far = one(SN50, "permute", 1 << 20, (2,), (1,)), one(SN50, "permute", 1 << 20, (2,), (8,))
    sockets = SN50.sockets
    assert near.switch == 0 and far.node == 0
    assert far.switch == pytest.approx(near.node / 2, rel=1e-3)  # two ports of the bandwidth of a link
    extra = sockets.link_latency + sockets.switch_latency
    assert far.seconds - far.switch == pytest.approx(near.seconds - near.node + extra)


def test_over_nodes_a_sum_is_hierarchical_and_takes_both_kinds_of_links() -> None:
    found = one(SN50, "all_reduce", 1 << 26, (16,), (1,))
    flat = min(
        x.seconds
        for x in collectives(SN50, "all_reduce", 1 << 25, "bf16", 1 << 26, (16,), (1,))
        if "hierarchical" not in x.algorithm
    )
    assert found.algorithm.startswith("hierarchical") and found.seconds < flat
    assert found.node > 0 and found.switch > 0
    assert found.interval == max(found.node, found.switch, found.agcu)  # tiles behind each other overlap on them


def test_the_two_links_between_neighbours_of_a_torus_of_two_rows_count_twice() -> None:
    across, along = one(SN10, "permute", 1 << 24, (2,), (4,)), one(SN10, "permute", 1 << 24, (4,), (1,))
    assert across.node == pytest.approx(along.node / 2, rel=1e-3)


def test_groups_that_share_links_wait_for_each_other() -> None:
    """Every other socket of a row of four: the messages of both groups pass the same links."""
    shared, alone = one(SN10, "permute", 1 << 24, (2,), (2,)), one(SN10, "permute", 1 << 24, (2,), (1,))
    assert shared.node >= alone.node * (1 - 1e-3)


def test_bursts_in_flight_bound_what_an_agcu_passes() -> None:
    few = SN50.with_values(agcu__outstanding=4)
    assert peer_rate(few) == pytest.approx(4 * 64 / (2 * message_seconds(few)))
    slow, fast = (one(x, "permute", 1 << 20, (2,), (1,)) for x in (few, SN50))
    assert slow.interval == slow.agcu > fast.interval


def test_one_socket_sends_nothing() -> None:
    assert one(SN50, "all_reduce", 1 << 20, (1,), (1,)).seconds == 0
    assert collective(SN50, "permute", 8, "bf16", 16, (4,), (1,), by=4).seconds == 0


def test_members_are_in_the_order_of_their_places() -> None:
    assert members(5, (2, 2), (4, 1)) == (0, 1, 4, 5)
    assert members(6, (2,), (4,)) == (2, 6)


def test_more_sockets_than_there_are_is_refused() -> None:
    with pytest.raises(CompileError, match="spans 32 sockets; 'sn40l' has 16"):
        one(SN40L, "all_reduce", 1 << 10, (2,), (16,))
    with pytest.raises(CompileError, match="no collective 'broadcast'"):
        one(SN40L, "broadcast", 1 << 10, (2,), (1,))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"sockets__topology": "ring"}, "topology 'ring' is unknown"),
        ({"sockets__columns": 3, "sockets__topology": "torus"}, "do not divide a node"),
        ({"sockets__switch_bandwidth": 0.0}, "there are no switches"),
        ({"sockets__topology": "none"}, "topology 'none'"),
        ({"sockets__links": 0}, "without links"),
        ({"sockets__efficiency": 1.5}, "not in"),
    ],
)
def test_a_device_whose_sockets_make_no_sense_is_refused(change: dict[str, object], what: str) -> None:
    with pytest.raises(CompileError, match=what):
        SN50.with_values(**change)
