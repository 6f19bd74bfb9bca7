"""Which units lie side by side: the runtime joins those and no others."""

from dataclasses import replace

import numpy as np
import pytest

from headrace.dialects.support.access import Stream, View
from headrace.dialects.tensor.shapes import TT
from headrace.runtime.beside import joined
from headrace.runtime.program import BodyOp, Config, Flow, Pcu, Pmu

SITE = np.zeros((1, 2), np.int32)
NONE = np.zeros(0, np.int32)


def product(name: str, columns: int) -> Pcu:
    """[4, 3] times some columns of [3, 8]."""
    types = TT((4, 3), "f32"), TT((3, columns), "f32"), TT((4, columns), "f32")
    body = BodyOp("tensor.matmul", {"accumulate": "f32"}, (0, 1), (2,))
    return Pcu(name, "systolic", 2, (body,), (2,), types, SITE)


def flow(src: int, dst: int, port: int, tile: tuple[int, ...], source: View | None, target: View | None) -> Flow:
    """A stream of one tile."""
    return Flow(src, 0, dst, port, Stream(tile, "f32"), source, target, SITE, NONE, NONE)


def divided() -> Config:
    """Five columns by one unit, three by another: rows in unit 0, columns in 1, results in 2."""
    units = [Pmu(n, s, "f32", 0, 1, 0.0, 0, 1, SITE) for n, s in (("x", (4, 3)), ("w", (3, 8)), ("y", (4, 8)))]
    flows: list[Flow] = []
    for unit, first, size in ((3, 0, 5), (4, 5, 3)):
        flows.append(flow(0, unit, 0, (4, 3), View(0, (3, 1)), None))
        flows.append(flow(1, unit, 1, (3, size), View(first, (8, 1)), None))
        flows.append(flow(unit, 2, 0, (4, size), None, View(first, (8, 1))))
    return Config("c", (), (*units, product("main", 5), product("rest", 3)), tuple(flows))


def test_neighbouring_columns_are_one_product() -> None:
    found = joined(divided())
    (unit,) = [u for u in found.units if isinstance(u, Pcu)]
    assert [t.shape for t in unit.types] == [(4, 3), (3, 8), (4, 8)]
    assert [(f.stream.tile, f.src_view, f.dst_view) for f in found.flows] == [
        ((4, 3), View(0, (3, 1)), None),
        ((3, 8), View(0, (8, 1)), None),
        ((4, 8), None, View(0, (8, 1))),
    ]


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("offset", [4, 6])
def test_what_does_not_begin_where_the_other_ends_stays_apart(which: int, offset: int) -> None:
    config = divided()
    flows = list(config.flows)
    old = flows[3 + which]
    side = "dst_view" if which == 2 else "src_view"
    view = old.dst_view if which == 2 else old.src_view
    assert view is not None
    flows[3 + which] = replace(old, **{side: View(offset if which else offset - 3, view.strides)})
    wrong = replace(config, flows=tuple(flows))
    assert joined(wrong) is wrong
