"""Units are shared out among phases such that no other share of the grid is faster."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from headrace.passes.analysis.phases import Grid

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
