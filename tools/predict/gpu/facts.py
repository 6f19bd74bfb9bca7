"""What a GPU is, for the model of time of a decoder: numbers from a TOML file, each with its source.

Files are written like those of our devices (`gpus/h200.toml`); `base = "h100"` starts from another one.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from headrace.dialects.machine.device import Basis, read_facts
from headrace.dialects.machine.parts import Quantity
from headrace.dialects.support.diagnostics import CompileError, nearest


@dataclass(frozen=True)
class Memory:
    """High-bandwidth memory."""

    bytes: Annotated[int, Quantity("B", "capacity", low=1)]
    bandwidth: Annotated[float, Quantity("B/s", "peak", low=1)]
    efficiency: Annotated[float, Quantity("ratio", "share of the peak that a long stream reaches")]
    usable: Annotated[float, Quantity("ratio", "share of the capacity that a server gives to weights and caches")]


@dataclass(frozen=True)
class Multiprocessors:
    """Streaming multiprocessors (SMs), and what one of them can move."""

    count: Annotated[int, Quantity("SMs", "multiprocessors", low=1)]
    clock: Annotated[float, Quantity("Hz", "boost clock", low=1)]
    read: Annotated[float, Quantity("B/cycle", "that one can read from beyond its L1, all together from L2", low=1)]
    shared: Annotated[float, Quantity("B/cycle", "of shared memory, which feeds the tensor cores", low=1)]


@dataclass(frozen=True)
class Rates:
    """Dense tensor-core rates by the type of the operands; 0 where there are none."""

    bf16: Annotated[float, Quantity("FLOP/s", "bf16 with f32 sums", low=1)]
    f8: Annotated[float, Quantity("FLOP/s", "8-bit floats with f32 sums")]
    f4: Annotated[float, Quantity("FLOP/s", "4-bit floats with f32 sums")]


@dataclass(frozen=True)
class Efficiency:
    """Shares of the rates that good kernels sustain when tiles and waves come out even."""

    products: Annotated[float, Quantity("ratio", "matrix products")]
    attention: Annotated[float, Quantity("ratio", "attention of a prompt")]


@dataclass(frozen=True)
class Link:
    """NVLink of one GPU, through switches to every other one of the node."""

    gpus: Annotated[int, Quantity("GPUs", "that it joins", low=1)]
    bandwidth: Annotated[float, Quantity("B/s", "in one direction", low=1)]
    efficiency: Annotated[float, Quantity("ratio", "share of it that a collective reaches")]
    latency: Annotated[float, Quantity("s", "of one exchange: write to a peer, fence, see its flag")]


@dataclass(frozen=True)
class Kernel:
    """Kernels that follow each other."""

    gap: Annotated[float, Quantity("s", "from the end of one to the start of the next inside a graph")]
    ramp: Annotated[float, Quantity("s", "in which one starts and ends: blocks, first loads, last stores")]
    eager: Annotated[float, Quantity("s", "that the host needs to launch one without a graph")]
    graph: Annotated[int, Quantity("tokens", "most tokens of a step that runs as a graph")]


@dataclass(frozen=True)
class Host:
    """What the server does between two steps and does not hide behind them."""

    step: Annotated[float, Quantity("s", "of every step")]
    sequence: Annotated[float, Quantity("s", "of every step for each sequence: schedule, sample, send")]


@dataclass(frozen=True)
class Gpu:
    """One GPU of a node."""

    name: str
    memory: Memory
    sm: Multiprocessors
    rates: Rates
    efficiency: Efficiency
    link: Link
    kernel: Kernel
    host: Host


def _folder() -> Any:
    return resources.files("headrace.tools.predict.gpu") / "gpus"


def gpu_names() -> tuple[str, ...]:
    """GPUs that ship with Headrace."""
    return tuple(sorted(p.name.removesuffix(".toml") for p in _folder().iterdir() if p.name.endswith(".toml")))


def _raw(name: str) -> dict[str, Any]:
    is_path = name.endswith(".toml") or "/" in name
    if not is_path and name not in gpu_names():
        raise CompileError(
            "unknown-gpu",
            f"there is no GPU '{name}'",
            why=f"known: {', '.join(gpu_names())}",
            fix=f"{nearest(name, gpu_names())}; or give a .toml file that describes one",
        )
    try:
        data = Path(name).read_bytes() if is_path else (_folder() / f"{name}.toml").read_bytes()
        table = tomllib.loads(data.decode())
    except OSError as error:
        raise CompileError("unknown-gpu", f"'{name}' cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CompileError("bad-device", f"'{name}' is not TOML: {error}", location=name) from None
    base = table.pop("base", None)
    if base is None:
        return table
    whole = _raw(str(base))
    return {part: {**whole.get(part, {}), **table.get(part, {})} for part in {**whole, **table}}


@cache
def _loaded(name: str) -> tuple[Gpu, dict[str, Basis]]:
    return read_facts(Gpu, _raw(name), Path(name).stem, name)


def load_gpu(name: str) -> Gpu:
    """A shipped GPU by name, or that of a TOML file. `CompileError` `unknown-gpu` or `bad-device`."""
    return _loaded(name)[0]


def gpu_bases(name: str) -> dict[str, Basis]:
    """For every number, by dotted path, its source or why it is inferred."""
    return dict(_loaded(name)[1])


__all__ = ["Efficiency", "Gpu", "Host", "Kernel", "Link", "Memory", "Multiprocessors", "Rates", "gpu_bases"]
__all__ += ["gpu_names", "load_gpu"]
