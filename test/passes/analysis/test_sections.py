"""An order of ops that changes, against a list."""

from __future__ import annotations

import random

import pytest
from xdsl.dialects.test import TestOp
from xdsl.ir import Operation

from headrace.passes.analysis import sections
from headrace.passes.analysis.sections import Order


@pytest.mark.parametrize("gap", [2, 1 << 6, 1 << 256])
def test_an_order_is_that_of_a_list(gap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With small gaps it is labelled anew all the time."""
    monkeypatch.setattr(sections, "_GAP", gap)
    rng = random.Random(gap % 1000)
    model: list[Operation] = [TestOp() for _ in range(20)]
    order = Order(model)
    stranger = TestOp()
    for _ in range(300):
        chosen = rng.sample(model, rng.randint(0, 5))
        target = rng.choice(model)
        match rng.randrange(4):
            case 0 if len(model) > 8:
                order.remove(target)
                model.remove(target)
            case 1:
                new = TestOp()
                order.replace(target, new)
                model[model.index(target)] = new
            case _:
                moved = [op for op in chosen if op is not target]
                order.move(moved, target)
                model = [op for op in model if op not in moved]
                at = model.index(target)
                model[at:at] = moved
        assert order.sorted(rng.sample(model, len(model))) == model
        one, other = rng.sample(range(len(model)), 2)
        assert order.is_before(model[one], model[other]) == (one < other)
        assert order.is_before(model[one], stranger) and not order.is_before(stranger, model[one])
