"""Max-min fair shares against answers that are known, and the rules that define them on random cases."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.runtime.sharing import Resources, fair_speeds


def speeds(rates: list[list[float]], wants: list[float], weights: list[list[float]] | None = None) -> list[float]:
    table = np.array(rates)
    found, _ = fair_speeds(
        Resources(table, np.array(weights or (table > 0).astype(float).tolist()), ("r",) * table.shape[1]),
        np.array([wants]),
    )
    return found[0].tolist()


def test_two_have_half_each() -> None:
    assert speeds([[1.0], [1.0]], [1, 1]) == pytest.approx([0.5, 0.5])


def test_who_wants_less_leaves_the_rest() -> None:
    assert speeds([[1.0], [1.0], [1.0]], [0.1, 1, 1])[1:] == pytest.approx([0.45, 0.45])
    assert speeds([[0.2], [1.0], [1.0]], [1, 1, 1]) == pytest.approx([1.0, 0.4, 0.4])


def test_who_wants_little_could_have_more() -> None:
    assert speeds([[1.0], [1.0]], [0.1, 1])[0] == pytest.approx(0.9)


def test_parts_go_by_weight() -> None:
    assert speeds([[1.0], [1.0]], [1, 1], [[3], [1]]) == pytest.approx([0.75, 0.25])


def test_the_tightest_resource_counts_and_frees_the_others() -> None:
    """The second user is held to a third by the second resource; the first has what it leaves of the first one."""
    rates = [[1, 0], [1, 1], [0, 1], [0, 1]]
    assert speeds(rates, [1, 1, 1, 1]) == pytest.approx([2 / 3, 1 / 3, 1 / 3, 1 / 3])


def test_stretches_are_apart() -> None:
    one = Resources(np.array([[1.0], [1.0]]), np.ones((2, 1)), ("r",))
    found, setter = fair_speeds(one, np.array([[1.0, 1.0], [1.0, 0.0]]))
    assert found.tolist() == [[0.5, 0.5], [1.0, pytest.approx(1.0, abs=1)]]
    assert setter.tolist()[0] == [0, 0] and setter.tolist()[1][0] == -1


@pytest.mark.parametrize("seed", range(20))
def test_shares_are_feasible_and_nobody_could_have_more_without_another_having_less(seed: int) -> None:
    pick = np.random.default_rng(seed)
    users, kinds = int(pick.integers(2, 8)), int(pick.integers(1, 5))
    rates = pick.random((users, kinds)) * (pick.random((users, kinds)) < 0.7)
    weights = (rates > 0) * pick.integers(1, 4, (users, kinds)).astype(float)
    shared = Resources(rates, weights, ("r",) * kinds)
    given, setter = fair_speeds(shared, np.ones((1, users)))
    load = given[0] @ rates
    assert (load <= 1 + 1e-4).all() and (given > 0).all()
    for user in range(users):
        if given[0, user] < 1 - 1e-9:  # held by a full resource, in which nobody has a larger part
            r = int(setter[0, user])
            assert load[r] == pytest.approx(1.0, abs=1e-4)
            parts = given[0] * rates[:, r] / np.maximum(weights[:, r], 1e-9)
            assert parts[user] == pytest.approx(parts.max(), rel=1e-4)


def test_only_what_can_be_short_is_kept() -> None:
    rates = np.array([[0.4, 0.9, 0.8, 0.45], [0.5, 0.3, 0.8, 0.15], [0.0, 0.0, 0.0, 0.0]])
    found = Resources(rates, (rates > 0).astype(float), ("a", "b", "c", "d")).contended()
    assert found.kinds == ("b", "c")
    double = Resources(np.array([[0.6, 0.9], [0.8, 1.2]]), np.ones((2, 2)), ("a", "b"))
    assert double.contended().kinds == ("b",)
