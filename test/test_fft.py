"""The Fourier transform example of the SN40L paper (arXiv 2405.07518, Table I): what fusion does to the operational
intensity. FLOP and bytes are read off profiles of the compiled programs, so every load and store counts that they make.

Given by the paper: the chain Gemm0, Mul, Transpose, Gemm1 in bf16, the three ways to fuse it and their intensities.
The sizes are not published; those of the model here are fitted (docs/mapping.md says how).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.compiler import translate
from headrace.passes.pipelines import DATAFLOW, RDU, TENSOR
from headrace.runtime.timing import Timing, time_program

DATA = Path(__file__).parent / "data" / "fft"
PUBLISHED = {"unfused": 39.5, "gemm0-mul-transpose": 102.6, "fused": 410.4}
BATCH, COLUMNS, POINTS, ROWS, WANTED = 12, 512, 138, 512, 128
MIDDLE = BATCH * COLUMNS * ROWS


def profile(**options: Any) -> Timing:
    done = translate(str(DATA / "monarch.mlir"), "sn40l", shape_only=True, **options)
    return time_program(done.program)


def stages_apart() -> str:
    """The default passes with an op a stage, the rule deciding which share a section."""
    given = {
        "convert-tensor-to-dataflow": "transposes=stages",
        "cut-sections": f'by=rule rules="{DATA / "rules.yaml"}"',
    }
    passes = [x for x in (*TENSOR, *DATAFLOW, *RDU) if x != "fuse-stages"]
    return ",".join(f"{x}{{{given[x]}}}" if x in given else x for x in passes)


WAYS = {
    "unfused": ({"mode": "O0"}, 4),
    "gemm0-mul-transpose": ({"mode": "O1", "fusion_rules": str(DATA / "rules.yaml")}, 2),
    "fused": ({"mode": "O3"}, 1),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_intensities_are_those_of_the_paper(way: str) -> None:
    options, sections = WAYS[way]
    found = profile(**options)
    assert len(found.launches) == sections
    assert found.ddr_bytes == 0
    assert found.flops / found.hbm_bytes == pytest.approx(PUBLISHED[way], rel=0.02)
    assert found.flops == MIDDLE * (2 * POINTS + 1 + 2 * WANTED)
    edges = BATCH * COLUMNS * POINTS + POINTS * ROWS + COLUMNS * ROWS + COLUMNS * WANTED + BATCH * ROWS * WANTED
    crossings = {"unfused": 6, "gemm0-mul-transpose": 2, "fused": 0}[way]
    assert found.hbm_bytes == 2 * (edges + crossings * MIDDLE)  # nothing twice, no part of a burst in vain


def test_the_rule_joins_ops_that_are_stages_of_their_own() -> None:
    found = profile(pipeline=stages_apart())
    assert len(found.launches) == 2
    assert found.flops / found.hbm_bytes == pytest.approx(PUBLISHED["gemm0-mul-transpose"], rel=0.02)
    copies = [u for u in found.configs[0].units if u.name.startswith("copy")]
    assert copies and {u.location for u in copies} == {"Transpose"}


def test_fusion_is_faster() -> None:
    times = [profile(**options).seconds for options, _ in WAYS.values()]
    assert times[0] > times[1] > times[2]
