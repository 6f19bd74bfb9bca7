"""A program gives the same results at every level: tensor, dataflow, and the routed program, merged and literal.

Random ones by seed (`python -m headrace.tools.fuzz` tries more of them), and those of `data/levels.mlir`. Integers and
booleans are equal; floats are within `fuzz.TOLERANCE` of their largest magnitude: tiles and units add up in other
orders, which costs a few units in the last place per sum.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from headrace.dialects.machine.device import Device, load_device
from headrace.dialects.support.dtypes import FLOATS, to_numpy
from headrace.dialects.support.weights import WeightStore
from headrace.dialects.tensor.base import tt
from headrace.dialects.tensor.program import signature
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.storage import weight_types
from headrace.passes import pipelines
from headrace.tools.fuzz import Program
from headrace.tools.fuzz.campaign import Plan, outcome
from headrace.tools.fuzz.check import check
from headrace.tools.fuzz.nearby import Array
from headrace.tools.fuzz.settings import Setting
from headrace.tools.opt import context, parse

SEEDS = 120
TINY = Path(__file__).parent / "dialects" / "machine" / "data" / "tiny.toml"
REFUSALS = frozenset(
    {
        *("stage-too-large", "too-many-units", "buffer-too-large", "empty-operand", "unit-too-small"),
        "unknown-element-type",  # f8e4m3 on a device whose file does not list it
    }
)
"""What a device with few units and tiny memories may say, and of programs with nothing in them."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_levels_agree(seed: int) -> None:
    found = outcome(seed, Plan("pipeline"))
    assert not found.kind or (found.kind == "refused" and found.code in REFUSALS), found.text


@pytest.mark.parametrize("seed", range(SEEDS))
def test_passes_keep_results(seed: int) -> None:
    found = outcome(seed, Plan("pass"))
    assert not found.kind or (found.kind == "refused" and found.code in REFUSALS), found.text


@cache
def small() -> Device:
    """A device of a few units with memories of 4096 bytes."""
    tiny = load_device(TINY)
    return replace(tiny, grid=replace(tiny.grid, columns=6, rows=6, agcus_per_edge=6))


def pipeline(seed: int) -> str:
    """No tensor passes, passes on sections with options that make small tiles, passes on units."""
    rng = random.Random(seed)
    options = {
        "fuse-stages": rng.choice(("", "{most=2}", "")),
        "tile": f"{{rows={rng.choice((1, 2, 64))} steps={rng.choice((2, 4, 64))} chunk={rng.choice((64, 65536))}"
        f" resident={rng.choice((0.75, 0.0))}}}",
        "parallelize": rng.choice(("", "{share=0.2}", "{most=1}")),
        "size-buffers": f"{{copies={rng.choice((1, 2, 2, 3))}}}",
    }
    return ",".join(name + options.get(name, "") for name in (*pipelines.DATAFLOW, *pipelines.RDU))


def case(text: str) -> Program:
    """A program in text, with inputs and weights at random; integers are 0 or 1, so that they may be indices."""
    module, _ = parse(context(), text, "levels.mlir")
    func = next(op for op in module.body.block.ops if isinstance(op, FuncOp) and op.sym_name.data == "main")
    rng = np.random.default_rng(0)

    def array(type: TT) -> Array:
        numbers = rng.standard_normal(type.shape) if type.dtype in FLOATS else rng.integers(0, 2, type.shape)
        return np.asarray(numbers, to_numpy(type.dtype))

    names = signature(func).inputs
    inputs = {n: array(tt(a)) for n, a in zip(names, func.body.block.args, strict=True)}
    store = WeightStore()
    for key, type in weight_types(module).items():
        store.add_array(key, array(type))
    return Program(module, inputs, store)


def reversed_order(module: ModuleOp) -> ModuleOp:
    """The module with its functions the other way round."""
    ops = list(module.body.block.ops)
    for op in ops:
        op.detach()
    return ModuleOp(ops[::-1])


def _cases() -> dict[str, str]:
    parts = (Path(__file__).parent / "data" / "levels.mlir").read_text(encoding="utf-8").split("// -----\n")
    return {re.findall(r"^// (.*)$", part, re.M)[-1]: part for part in parts}


@pytest.mark.parametrize("name", _cases())
def test_levels_agree_on(name: str) -> None:
    with np.errstate(all="ignore"):
        check(case(_cases()[name]), Setting(small(), pipeline(len(name))))


@pytest.mark.parametrize("name", [name for name, text in _cases().items() if "func.call" in text])
def test_order_of_functions_does_not_matter(name: str) -> None:
    program = case(_cases()[name])
    program = program._replace(module=reversed_order(program.module))
    with np.errstate(all="ignore"):
        check(program, Setting(small(), pipeline(len(name))))
