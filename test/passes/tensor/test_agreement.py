"""Every tensor pass keeps what random programs compute, and says truly whether it changed them."""

from __future__ import annotations

from functools import cache

import pytest
from xdsl.context import Context

from headrace.dialects.tensor.interpreter import run_function
from headrace.passes.infra.manager import PassManager, Watch
from headrace.passes.infra.registry import build
from headrace.tools.fuzz import Distribution, Program, disagreement, random_program
from headrace.tools.fuzz.nearby import Array

PASSES = (
    "canonicalize",
    "simplify-views",
    "cse",
    "dce",
    "fold-constants",
    "fold-batch-norm",
    "fuse",
    "decompose",
    "decompose{keep=none}",
    "order-ops",
    "outline-repeated-layers{min-ops=2 min-saved=2}",
    "canonicalize,cse,fuse,simplify-views,fold-constants,decompose,canonicalize,cse,dce,outline-repeated-layers,order-ops",
    "decompose{keep=none},canonicalize,cse,fuse,fold-batch-norm,fold-constants,dce,outline-repeated-layers{min-saved=4}",
)
SEEDS = 16
KINDS = {"fold-batch-norm": ("conv",), "decompose": ("attention", "norm"), "outline-repeated-layers": ("layers",)}
"""Steps that give a pass something to do, where random ones seldom do."""


@cache
def program(seed: int, pipeline: str = "") -> tuple[Program, dict[str, Array]]:
    """A program with dead code in some, and its results; half of those for a single pass are of its kinds."""
    kinds = KINDS.get(pipeline.partition("{")[0], ()) if seed % 2 and "," not in pipeline else ()
    module, inputs, store = random_program(seed, Distribution(ops=12, dead=seed % 4 == 0, kinds=kinds))
    return Program(module, inputs, store), run_function(module, "main", inputs, store)


@pytest.mark.parametrize("pipeline", PASSES)
def test_pass_keeps_results(pipeline: str) -> None:
    changed = 0
    for seed in range(SEEDS):
        (original, inputs, store), expected = program(seed, pipeline)
        module = original.clone()
        changed += PassManager(Context(), build(pipeline), Watch(verify_each=True)).run(module)
        found = run_function(module, "main", inputs, store)
        assert not (why := disagreement(expected, found)), f"seed {seed}: {why}\n{module}"
    assert changed, "no program had anything for the pass to do"


@pytest.mark.parametrize("pipeline", PASSES)
def test_pass_comes_to_rest(pipeline: str) -> None:
    """The second run of a pass finds nothing to do."""
    for seed in range(SEEDS // 4):
        module = program(seed)[0].module.clone()
        PassManager(Context(), build(pipeline)).run(module)
        assert not PassManager(Context(), build(pipeline.split(",")[-1])).run(module), f"seed {seed}\n{module}"
