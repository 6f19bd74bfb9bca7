"""Programs that published figures are about and no model gives: a Fourier transform, products, an inner product."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from headrace.dialects.machine.device import Device
from headrace.runtime.timing import Timing, time_program

BATCH, COLUMNS, POINTS, ROWS, WANTED = 12, 512, 138, 512, 128
"""Sizes of the transform: sequences, columns, points of a column, and what they become and what is wanted of it."""
RULE = """- name: gemm0-mul-transpose
  priority: 10
  pattern:
    gemm0: {op_type: matmul, child: mul}
    mul: {op_type: mul, child: transpose, required: false}
    transpose: {op_type: any, required: false}
"""
WAYS: dict[str, dict[str, str]] = {
    "unfused": {"mode": "O0"},
    "gemm0-mul-transpose": {"mode": "O1", "fusion_rules": RULE},
    "fused": {"mode": "O3"},
}
"""Ways to fuse the transform → how the compiler is asked for them."""
TILES = 1024
"""Row tiles that a large product is cut into at least."""


def fourier(device: Device, way: str) -> Timing:
    """A step of a Fourier transform as products with matrices (Monarch), in a way of fusing it."""
    points, grid = _type(BATCH, COLUMNS, POINTS), _type(BATCH, COLUMNS, ROWS)
    turned, wanted = _type(BATCH, ROWS, COLUMNS), _type(BATCH, ROWS, WANTED)
    first, factors, last = _type(POINTS, ROWS), _type(COLUMNS, ROWS), _type(COLUMNS, WANTED)
    text = f"""func.func @main(%x: {points} {{tensor.name = "x"}}) -> {wanted}
    attributes {{tensor.result_names = ["y"]}} {{
  %dft0 = tensor.weight "dft0" : {first}
  %twiddle = tensor.weight "twiddle" : {factors}
  %dft1 = tensor.weight "dft1" : {last}
  %0 = tensor.matmul %x, %dft0 : {points}, {first} -> {grid} loc("Gemm0")
  %1 = tensor.mul %0, %twiddle : {grid}, {factors} -> {grid} loc("Mul")
  %2 = tensor.transpose %1 {{perm = array<i64: 0, 2, 1>}} : {grid} -> {turned} loc("Transpose")
  %3 = tensor.matmul %2, %dft1 : {turned}, {last} -> {wanted} loc("Gemm1")
  func.return %3 : {wanted}
}}
"""
    return compiled(text, device, **WAYS[way])


def product(device: Device, sockets: int, rows: int, inner: int, columns: int, dtype: str = "bf16") -> Timing:
    """A product whose inner dim is cut over the sockets; each has its block of columns of the sum in the end."""
    group = f'axes = ["tp"], sizes = array<i64: {sockets}>, strides = array<i64: 1>'
    x, w = _type(rows, inner // sockets, dtype=dtype), _type(inner // sockets, columns, dtype=dtype)
    whole, kept = _type(rows, columns, dtype=dtype), _type(rows, columns // sockets, dtype=dtype)
    text = f"""module attributes {{tensor.mesh = {{tp = {sockets} : i64}}}} {{
func.func @main(%x: {x} {{tensor.name = "x"}}) -> {kept} attributes {{tensor.result_names = ["y"]}} {{
  %w = tensor.weight "w" : {w}
  %0 = tensor.matmul %x, %w : {x}, {w} -> {whole} loc("product")
  %1 = tensor.reduce_scatter %0 {{axis = 1 : i64, {group}}} : {whole} -> {kept} loc("sum")
  func.return %1 : {kept}
}}
}}
"""
    return compiled(text, device, pipeline=_with("tile", f"tile{{steps={TILES}}}"))


def inner_product(device: Device, elements: int) -> Timing:
    """The sum of the products of two vectors in fp32, in rows of 4096."""
    rows = elements // 4096
    shape, one = f"tensor<{rows}x4096xf32>", "tensor<f32>"
    text = f"""func.func @main(%a: {shape} {{tensor.name = "a"}}, %b: {shape} {{tensor.name = "b"}}) -> {one}
    attributes {{tensor.result_names = ["y"]}} {{
  %0 = tensor.mul %a, %b : {shape}, {shape} -> {shape}
  %1 = tensor.reduce_sum %0 {{axes = array<i64: 0, 1>, keepdims = false}} : {shape} -> {one}
  func.return %1 : {one}
}}
"""
    return compiled(text, device)


def convolution(device: Device, fused: bool, channels: int, first: int, second: int) -> Timing:
    """A convolution of `first` x `second` points by Fourier transforms as products with matrices (Monarch, of two
    factors): there, times the kernel's transform, and back; complex numbers as pairs, input and output real, in bf16.
    Fused where the time is least, or every op a section; the host launches both."""
    lines: list[str] = []
    shape = _type(channels, second, first)

    def emit(op: str, operands: list[str], types: list[str], result: str, attributes: str = "") -> str:
        lines.append(
            f"  %{len(lines)} = tensor.{op} {', '.join(operands)}{attributes} : {', '.join(types)} -> {result}"
        )
        return f"%{len(lines) - 1}"

    def given(name: str, *sizes: int) -> tuple[str, str]:
        lines.append(f'  %{len(lines)} = tensor.weight "{name}" : {_type(*sizes)}')
        return f"%{len(lines) - 1}", _type(*sizes)

    def both(op: str, a: str, b: str, of: str) -> str:
        lines.append(f"  %{len(lines)} = tensor.{op} {a}, {b} : {of}, {of} -> {of}")
        return f"%{len(lines) - 1}"

    def combined(
        parts: list[str], op: str, name: str, sizes: tuple[int, ...], of: str, real: bool = False
    ) -> list[str]:
        """The parts (real, and imaginary where there is one) times a complex weight, as products or elementwise."""
        re, im = given(f"{name}.re", *sizes), given(f"{name}.im", *sizes)
        across = [[emit(op, [x, w], [of, t], of) for w, t in (re, im)] for x in parts]
        if len(parts) == 1:
            return across[0]
        found = [both("sub", across[0][0], across[1][1], of)]
        return found if real else [*found, both("add", across[0][1], across[1][0], of)]

    def turned(parts: list[str], of: str, to: str) -> list[str]:
        return [emit("transpose", [x], [of], to, " {perm = array<i64: 0, 2, 1>}") for x in parts]

    across = _type(channels, first, second)
    parts = combined(["%x"], "matmul", "there.first", (first, first), shape)
    parts = turned(combined(parts, "mul", "there.factors", (second, first), shape), shape, across)
    parts = combined(parts, "matmul", "there.second", (second, second), across)
    parts = combined(parts, "mul", "kernel", (channels, first, second), across)
    parts = combined(parts, "matmul", "back.second", (second, second), across)
    parts = turned(combined(parts, "mul", "back.factors", (first, second), across), across, shape)
    (y,) = combined(parts, "matmul", "back.first", (first, first), shape, real=True)
    head = (
        f'func.func @main(%x: {shape} {{tensor.name = "x"}}) -> {shape} attributes {{tensor.result_names = ["y"]}} {{'
    )
    text = "\n".join([head, *lines, f"  func.return {y} : {shape}", "}", ""])
    from headrace.tools.predict import System
    from headrace.tools.predict.predicting import passes

    return compiled(text, device, pipeline=passes(System(device), "O3" if fused else "O0", "host"))


def compiled(text: str, device: Device, fusion_rules: str = "", **options: Any) -> Timing:
    """The time of a program of IR, shapes only."""
    from headrace.compiler import translate

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "program.mlir")
        source.write_text(text, encoding="utf-8")
        if fusion_rules:
            rules = Path(folder, "rules.yaml")
            rules.write_text(fusion_rules, encoding="utf-8")
            options["fusion_rules"] = str(rules)
        return time_program(translate(str(source), device, shape_only=True, **options).program, "analytic")


def _with(name: str, instead: str) -> str:
    """The default passes with one in place of another."""
    from headrace.passes.pipelines import DATAFLOW, RDU, TENSOR

    return ",".join(instead if x == name else x for x in (*TENSOR, *DATAFLOW, *RDU))


def _type(*shape: int, dtype: str = "bf16") -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{dtype}>"
