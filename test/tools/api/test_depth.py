"""Equal layers are compiled once: what a deeper model adds is counted, not timed."""

from __future__ import annotations

from collections import Counter

import pytest

from headrace.compiler import Translation, translate
from headrace.passes.infra.manager import Watch
from headrace.tools.bench.depth import decode_step

SHALLOW, MIDDLE, DEEP = DEPTHS = (2, 4, 8)
ARGUMENTS_PER_LAYER = 12
"""Weights that each layer of the model has of its own."""


@pytest.fixture(scope="module")
def compiled() -> dict[int, Translation]:
    """The model at each depth, without weights."""
    return {
        depth: translate(decode_step(depth), "sn40l", shape_only=True, watch=Watch(measure=True)) for depth in DEPTHS
    }


def test_deeper_models_are_launched_more_often_and_configured_as_often(compiled: dict[int, Translation]) -> None:
    programs = {depth: done.program for depth, done in compiled.items()}
    names = [[config.name for config in program.configs] for program in programs.values()]
    assert names[0] == names[1] == names[2]
    around = len(programs[SHALLOW].launches) - SHALLOW
    for depth, program in programs.items():
        assert len(program.launches) == depth + around
        often = Counter(launch.config for launch in program.launches).most_common(1)
        assert often[0][1] == depth


def test_units_and_flows_do_not_grow(compiled: dict[int, Translation]) -> None:
    shallow, deep = compiled[SHALLOW].program, compiled[DEEP].program
    for few, many in zip(shallow.configs, deep.configs, strict=True):
        assert len(many.units) == len(few.units), few.name
        assert len(many.flows) == len(few.flows), few.name


def test_every_pass_leaves_a_few_ops_per_layer(compiled: dict[int, Translation]) -> None:
    """After outlining, a layer more is its weights, its part of the caches and a call; later a region each and a
    launch. Ops grow linearly, by the same number for every layer."""
    records = {depth: done.records for depth, done in compiled.items()}
    names = [record.spec for record in records[DEEP]]
    outlined = names.index("outline-repeated-layers")
    for i in range(outlined, len(names)):
        ops = {depth: records[depth][i].ops_after for depth in DEPTHS}
        each = (ops[MIDDLE] - ops[SHALLOW]) / (MIDDLE - SHALLOW)
        assert ops[DEEP] - ops[MIDDLE] == each * (DEEP - MIDDLE), names[i]
        assert each <= 2 * ARGUMENTS_PER_LAYER, names[i]
    before = {depth: records[depth][outlined].ops_before for depth in DEPTHS}
    assert (before[DEEP] - before[MIDDLE]) / (DEEP - MIDDLE) > 3 * ARGUMENTS_PER_LAYER


def test_a_layer_has_a_region_for_each_of_its_weights(compiled: dict[int, Translation]) -> None:
    weights = {depth: sum(r.kind == "weight" for r in done.program.regions) for depth, done in compiled.items()}
    others = {depth: len(done.program.regions) - weights[depth] for depth, done in compiled.items()}
    assert weights[DEEP] - weights[MIDDLE] == ARGUMENTS_PER_LAYER * (DEEP - MIDDLE)
    assert others[DEEP] - others[MIDDLE] <= DEEP - MIDDLE
