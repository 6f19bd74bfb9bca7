"""Units are shared out among phases such that no other share of the grid is faster."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from headrace.dialects.machine.cost import memory_bytes_per_cycle, memory_cycles
from headrace.dialects.machine.device import Device, load_device
from headrace.passes.analysis.phases import Grid, Load, Run, Tally, share_generators

OPTIONS = [(1, 1000.0), (2, 500.0), (4, 260.0), (8, 140.0)]


def test_a_stage_takes_the_least_units_that_are_fast_enough() -> None:
    grid = Grid(100.0, 2000.0)
    units = grid.units(OPTIONS)
    for time, found in zip(grid.times, units, strict=True):
        enough = [count for count, cycles in OPTIONS if cycles <= time * (1 + 1e-9)]
        assert found == (min(enough) if enough else np.inf)


@pytest.mark.parametrize("budget", [1, 2, 3, 5, 9, 16, 17, 40])
@pytest.mark.parametrize("phases", [1, 2, 3])
def test_shares_are_near_the_best_there_are(phases: int, budget: int) -> None:
    grid = Grid(100.0, 4000.0)
    demands = [grid.units([(n, cycles * (1 + i)) for n, cycles in OPTIONS]) for i in range(phases)]
    found = grid.share(demands, budget)
    fits = [
        sum(cycles * (1 + i) for i, (_, cycles) in enumerate(choice))
        for choice in product(OPTIONS, repeat=phases)
        if sum(n for n, _ in choice) <= budget
    ]
    if not fits:
        assert found is None
        return
    assert found is not None
    assert sum(demand[at] for demand, at in zip(demands, found, strict=True)) <= budget
    total = sum(float(grid.times[at]) for at in found)
    assert min(fits) <= total * (1 + 1e-9)
    assert total <= 1.25 * min(fits), "a price for units misses only what lies between two prices"


def test_generators_go_by_bytes_and_then_to_what_is_used_first() -> None:
    nbytes = np.array([1e6, 1e6, 1e6, 1e3])
    counts = share_generators(nbytes, np.array([0, 1, 2, 2]), 80, 0, 15.0)
    assert 78 <= counts.sum() <= 80
    assert counts[0] > counts[1] >= counts[2] > counts[3] >= 1
    assert counts[2] >= 15.0 * 2 / 3


def test_generators_suffice_for_many_loads() -> None:
    counts = share_generators(np.full(70, 1e6), np.arange(70), 80, 1000, 15.0)
    assert counts.sum() <= 80 * (1 + 1e-9) and counts.min() > 0


def test_phases_work_while_what_later_ones_need_arrives() -> None:
    """The second phase waits for its load, which no part of the first one's work delays; all loads take what the memory
    takes for their bytes."""
    device = load_device("sn40l")
    rate = memory_bytes_per_cycle(device, "hbm")
    mega = Load(1 << 20, float(1 << 20), float(1 << 20))
    grid = Grid(100.0, 1000.0)

    def modelled(first: float, second: float) -> float:
        tally = Tally(device, 100, grid)
        for phase, cycles in enumerate((first, second)):
            step = np.full(len(grid.times), cycles)
            tally.add(Run(phase, np.ones(len(grid.times)), step, {0: step}))
            tally.load(mega)
        return tally.cycles(0, 7.0)

    both = 2 * mega.bytes / rate
    assert modelled(0.0, 0.0) == pytest.approx(both + tallied_latency(device) + 7)
    assert modelled(100.0, 500.0) == pytest.approx(modelled(0.0, 0.0) + 500)
    assert modelled(5000.0, 500.0) > modelled(100.0, 500.0) + 3000


def tallied_latency(device: Device) -> float:
    """Cycles from asking for a word off chip until it is there."""
    return device.agcu.latency + memory_cycles(device, "hbm", 1)
