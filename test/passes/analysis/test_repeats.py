"""Tandem repeats of sequences and of the dataflow over them."""

from __future__ import annotations

import random

from headrace.passes.analysis.repeats import Step, Stretch, repeats, stretches


def steps(*rows: tuple[int, tuple[int, ...]]) -> list[Step]:
    """Steps of (kind, numbers of the steps read); negative numbers are values from outside."""
    return [Step(kind, (), tuple((n, 0) if n >= 0 else (-1, -n) for n in reads)) for kind, reads in rows]


def chain(*kinds: int) -> list[Step]:
    """Each step reads the one before."""
    return steps(*((kind, (i - 1,)) for i, kind in enumerate(kinds)))


def test_stretch_with_ends() -> None:
    assert stretches([9, 1, 2, 3, 1, 2, 3, 1, 2, 8])[0] == Stretch(start=1, length=8, period=3)


def test_shorter_period_wins_a_tie() -> None:
    assert stretches([1, 2, 1, 2, 1, 2, 1, 2])[0].period == 2


def test_kinds_that_recur_inside_a_period() -> None:
    period = [1, 1, 2, 1, 1, 3]
    assert stretches([7, *period * 3, 7])[0] == Stretch(1, 18, 6)


def test_nothing_repeats() -> None:
    assert stretches([1, 2, 3, 4]) == []


def test_long_sequences_of_random_periods() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        period = [rng.randrange(6) for _ in range(rng.randint(5, 60))]
        kinds = [100, 101, *period * rng.randint(2, 30), 102]
        best = stretches(kinds)[0]
        assert best.saved >= len(kinds) - 3 - len(period)


def test_the_cut_is_where_one_value_lives() -> None:
    # A residual layer: 1 reads x, 2 reads that, 3 adds x; step 0 is the same addition before the first layer.
    rows = steps(
        (3, (-1, -2)), *((k, r) for i in range(0, 9, 3) for k, r in ((1, (i,)), (2, (i + 1,)), (3, (i + 2, i))))
    )
    best = repeats(rows, stretches([s.kind for s in rows])[0])[0]
    assert (best.start, best.period, best.count) == (1, 3, 3)
    assert best.sources[2] == ((1, 0), None)


def test_dataflow_that_does_not_repeat() -> None:
    rows = steps((1, (-1,)), (2, (0,)), (1, (1,)), (2, (-1,)))
    assert repeats(rows, Stretch(0, 4, 2)) == []


def test_details_may_differ_outside() -> None:
    rows = [
        Step(5, "first", ((-1, 1),)),
        Step(1, (), ((0, 0), (-1, 2))),
        Step(5, "second", ((-1, 1),)),
        Step(1, (), ((2, 0), (1, 0))),
    ]
    (best, *_) = repeats(rows, Stretch(0, 4, 2))
    assert best.outside == (0,) and best.body == (1,)


def test_steps_that_all_stay_outside_are_no_layer() -> None:
    rows = [Step(5, name, ((-1, 1),)) for name in ("first", "second", "third")]
    assert repeats(rows, Stretch(0, 3, 1)) == []


def test_details_that_differ_inside_are_a_near_miss() -> None:
    rows = [*chain(1, 5, 1, 5, 1, 5)]
    rows[3] = Step(5, "other", rows[3].operands)
    assert all(found.count < 3 for found in repeats(rows, Stretch(0, 6, 2)))
