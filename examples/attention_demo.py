"""Compile a self-attention block for a described chip, run it, compare it with NumPy, and see what runs where.

    python examples/attention_demo.py [DEVICE]

Everything here is what a user of the package writes; `headrace demo` does the same on the command line.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import headrace
from headrace.tools.demo import Attention


def main(device: str) -> int:
    """The demo; the exit code."""
    # A model. This one is made here; a path of an .onnx file does as well.
    attention = Attention(tokens=128, width=256, heads=4, seed=0)
    model, inputs = attention.model(), attention.inputs()
    print(f"model     self-attention: 128 tokens of 256, 4 heads, {len(model.graph.node)} ONNX nodes")

    # Compile it: lower it through the levels, place and route it on the device.
    start = time.perf_counter()
    compiled = headrace.compile(model, device=device)
    seconds = time.perf_counter() - start
    launches = len(compiled.program.launches)
    print(f"compile   for {device}, placed and routed, {seconds:.2f} s; launches: {launches}")

    # Save the artifact and run it from there: the process that runs it needs no compiler.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "attention.sn"
        compiled.save(path)
        exe = headrace.load(path)
        out = exe(inputs)
        print(f"run       from the artifact, {path.stat().st_size / 1e6:.1f} MB")

    # Compare.
    reference = attention.reference(inputs["x"])
    error = float(np.abs(out["y"] - reference).max() / np.abs(reference).max())
    verdict = "ok" if error < 1e-4 else "DEVIATES"
    print(f"compare   with NumPy in double precision: error {error:.1e} of the largest value: {verdict}\n")

    # Profile: what each section and each op of the model costs on the chip.
    print(exe.profile())
    return 0 if error < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2] or ["sn40l"]))
