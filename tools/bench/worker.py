"""One peer in a process of its own: loads a model, checks its numbers, then runs bursts on request.

    python -m headrace.tools.bench.worker PEER MODEL [--device NAME] [--tolerance X]

PEER is `headrace`, `onnxruntime`, or `FILE.py` that defines `load(model: str) -> Callable[[dict], dict | list]`.
The inputs and reference outputs are MODEL's neighbours `<stem>_inputs.npz` and `<stem>_reference.npz`.

Protocol, one JSON object a line: the worker first writes a ready message (or `{"failed": reason}`), then answers
`{"burst": seconds}` with `{"calls", "cpu", "wall"}` (totals of the burst, seconds) until its input ends.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

Arrays = Mapping[str, Any]
Run = Callable[[Arrays], Any]
READ_IN_PLACE = 4 << 20


def load_headrace(model: str, device: str) -> Run:
    """Compile the model in this process and give the executable.

    Inputs of READ_IN_PLACE bytes or more are written into the executable's own memory once: a call reads them where
    they are, as the peers read the arrays that they are given. Smaller ones are copied in at every call, and all
    results out.
    """
    import numpy as np

    import headrace

    exe = headrace.compile(model, device=device)
    bound = exe.bind()
    placed: dict[str, Any] = {}

    def call(inputs: Arrays) -> dict[str, Any]:
        for name, array in inputs.items():
            if placed.get(name) is not array:
                np.copyto(bound.inputs[name], array)
                if array.nbytes >= READ_IN_PLACE:
                    placed[name] = array
        bound.run()
        return {name: array.copy() for name, array in bound.outputs.items()}

    return call


def load_onnxruntime(model: str, device: str) -> Run:
    """A CPU session with one thread and default optimisations."""
    onnxruntime: Any = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs)


def load_file(path: str) -> Callable[[str, str], Run]:
    """The loader that a Python file defines."""
    spec = importlib.util.spec_from_file_location("bench_peer", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda model, device: module.load(model)


def loader(peer: str) -> Callable[[str, str], Run]:
    """The load function of a peer named on the command line."""
    known = {"headrace": load_headrace, "onnxruntime": load_onnxruntime}
    return known[peer] if peer in known else load_file(peer)


def largest_error(got: Any, reference: list[Any]) -> float:
    """Maximum over the outputs of max |got − reference| / max |reference|; infinite when a shape differs or a value is
    not finite."""
    import numpy as np

    arrays: list[Any] = list(cast("Arrays", got).values()) if isinstance(got, Mapping) else list(got)
    if len(arrays) != len(reference):
        return float("inf")
    worst = 0.0
    for ours, theirs in zip(arrays, reference, strict=True):
        if ours.shape != theirs.shape or not np.isfinite(ours).all():
            return float("inf")
        scale = max(float(np.abs(theirs).max()), 1e-30)
        worst = max(worst, float(np.abs(ours - theirs).max()) / scale)
    return worst


def peak_rss_kb() -> int:
    """Peak resident memory of this process, kB; 0 where the system does not tell."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1])
    return 0


def versions(peer: str) -> dict[str, str]:
    """Versions of the libraries that the peer computes with."""
    import importlib.metadata as metadata

    names = ["numpy", "headrace" if peer == "headrace" else "onnxruntime" if peer == "onnxruntime" else "numpy"]
    found = {"python": sys.version.split()[0]}
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def thread_pools() -> Any:
    """What threadpoolctl says about the loaded BLAS libraries, or None without it."""
    with contextlib.suppress(ImportError):
        threadpoolctl: Any = import_module("threadpoolctl")
        keep = ("internal_api", "version", "architecture", "num_threads")
        return [{k: pool.get(k) for k in keep} for pool in threadpoolctl.threadpool_info()]
    return None


def burst(run: Run, inputs: Arrays, calls: int) -> tuple[float, float]:
    """CPU and wall seconds of that many calls."""
    repeat = range(calls)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in repeat:
        run(inputs)
    return time.process_time() - cpu, time.perf_counter() - wall


def serve(run: Run, inputs: Arrays, call_seconds: float, out: Any) -> None:
    """Answer burst requests until standard input ends."""
    for line in sys.stdin:
        seconds = float(json.loads(line)["burst"])
        run(inputs)  # the other peer had the caches meanwhile
        calls = max(1, round(seconds / call_seconds))
        cpu, wall = burst(run, inputs, calls)
        call_seconds = max(cpu / calls, 1e-7)
        print(json.dumps({"calls": calls, "cpu": cpu, "wall": wall}), file=out, flush=True)


def main() -> int:
    """Entry point of the worker process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer")
    parser.add_argument("model")
    parser.add_argument("--device", default="sn40l")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    options = parser.parse_args()
    out, sys.stdout = sys.stdout, sys.stderr  # nothing but the protocol on standard output
    try:
        import numpy as np

        stem = options.model.removesuffix(".onnx")
        begin = time.process_time()
        run = loader(options.peer)(options.model, options.device)
        load = time.process_time() - begin
        with np.load(stem + "_inputs.npz") as stored:
            inputs = {name: stored[name] for name in stored.files}
        with np.load(stem + "_reference.npz") as stored:
            reference = [stored[name] for name in stored.files]
        error = largest_error(run(inputs), reference)
        if not error <= options.tolerance:
            raise ArithmeticError(f"outputs are off by {error:.3g} of the reference (tolerance {options.tolerance:g})")
        run(inputs)
        call_seconds = max(burst(run, inputs, 1)[1], 1e-6)
        calls = max(1, int(0.02 / call_seconds))
        call_seconds = burst(run, inputs, calls)[1] / calls
    except Exception as problem:
        print(json.dumps({"failed": f"{type(problem).__name__}: {problem}"}), file=out, flush=True)
        return 1
    ready = {"error": error, "load_cpu": load, "versions": versions(options.peer), "pools": thread_pools()}
    print(json.dumps(ready | {"pid": os.getpid(), "peak_rss_kb": peak_rss_kb()}), file=out, flush=True)
    serve(run, inputs, call_seconds, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
