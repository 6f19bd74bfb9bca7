"""The routed program as the audit reads it: plain tables of what the IR (or an artifact) says, and nothing derived.

Routes are kept as links with coordinates, so that a way off the mesh or with a gap can be written down and refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from headrace.dialects.machine.device import Device
from headrace.dialects.support.access import Stream, View
from headrace.dialects.tensor.shapes import TT

Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]


def no_ints(*shape: int) -> Ints:
    """An empty table."""
    return np.zeros(shape or (0,), np.int64)


@dataclass(frozen=True)
class BodyOp:
    """An op of a compute unit: inputs of the unit are values 0, 1, …, then come results in op order."""

    name: str
    attrs: Mapping[str, Any]
    operands: tuple[int, ...]
    results: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Unit:
    """A group of symmetric units: `sites` [n, 2] are column and row of each."""

    name: str
    sites: Ints
    location: str

    @property
    def size(self) -> int:
        """How many units."""
        return len(self.sites)


@dataclass(frozen=True, eq=False)
class Compute(Unit):
    """Compute units and their body; `types` are those of all values."""

    mode: str
    inputs: int
    ops: tuple[BodyOp, ...]
    types: tuple[TT, ...]
    outputs: tuple[int, ...]
    kind = "pcu"


@dataclass(frozen=True, eq=False)
class Buffer(Unit):
    """Memory units that hold one buffer, in equal blocks of dim `split`; `kept` from the first run of a launch on."""

    type: TT
    frames: int
    copies: int
    split: int
    banks: int
    kept: bool = False
    kind = "pmu"

    @property
    def block(self) -> tuple[int, int]:
        """How many addresses in a row belong to one unit, and after how many the first unit has its turn again."""
        shape = self.type.shape
        if not shape:
            return 1, 1
        inner = prod(shape[self.split + 1 :])
        return -(-shape[self.split] // self.size) * inner, shape[self.split] * inner


@dataclass(frozen=True, eq=False)
class Generator(Unit):
    """Address generators of a parameter: `direction` load, store, gather or scatter."""

    direction: str
    param: int
    kind = "agcu"


AnyUnit = Compute | Buffer | Generator


@dataclass(frozen=True, eq=False)
class Flow:
    """A stream between two units (numbers) with its pairs of sites, and for pair p the links `first[p]` to `first[p +
    1]`: switch and direction (0 … 3: east, west, south, north) of each, and its virtual channel."""

    source: int
    source_port: int
    target: int
    target_port: int
    stream: Stream
    source_view: View | None
    target_view: View | None
    credits: int
    pairs: Ints
    first: Ints
    x: Ints
    y: Ints
    way: Ints
    channel: Ints | None
    label: str
    location: str

    @property
    def ends(self) -> tuple[tuple[int, View | None], tuple[int, View | None]]:
        """Unit and address program at the source and at the target."""
        return (self.source, self.source_view), (self.target, self.target_view)


@dataclass(frozen=True, eq=False)
class Param:
    """A tensor that a config takes at launch."""

    name: str
    type: TT
    direction: str


@dataclass(frozen=True, eq=False)
class Config:
    """One configuration of the chip. `link_load`: what the program says of its busiest link; None: nothing."""

    name: str
    params: tuple[Param, ...]
    units: tuple[AnyUnit, ...]
    flows: tuple[Flow, ...]
    link_load: float | None
    location: str
    runs: int = 1
    """Most runs of a launch."""


@dataclass(frozen=True, eq=False)
class Region:
    """Off-chip memory of one tensor, or of `runs` densely one behind the other, at `address` (bytes) of `memory`."""

    name: str
    kind: str
    type: TT
    memory: str | None
    address: int
    location: str
    runs: int = 1


@dataclass(frozen=True, eq=False)
class Launch:
    """`runs` runs of a config: the region and the element offset of every parameter; by the host, or by the chip."""

    config: str
    args: tuple[tuple[str, int], ...]
    location: str
    by_host: bool = False
    runs: int = 1


@dataclass(frozen=True, eq=False)
class Repeat:
    """Launches that the chip repeats: `times` rounds of as many, from launch `first` to before launch `end`."""

    first: int
    end: int
    times: int


@dataclass(frozen=True, eq=False)
class Port:
    """A named input or output of the program."""

    kind: str
    name: str
    type: TT
    region: str
    offset: int


@dataclass(frozen=True, eq=False)
class Routed:
    """A whole routed program and its device."""

    device: Device
    configs: tuple[Config, ...]
    regions: tuple[Region, ...] = ()
    launches: tuple[Launch, ...] = ()
    ports: tuple[Port, ...] = ()
    notes: tuple[str, ...] = field(default=())
    """What could not be looked at, and why."""
    loops: tuple[Repeat, ...] = ()
    sockets: int = 1
    """How many run it, numbered from 0."""

    def __post_init__(self) -> None:
        runs: dict[str, int] = {}
        for launch in self.launches:
            runs[launch.config] = max(runs.get(launch.config, 1), launch.runs)
        configs = tuple(replace(c, runs=runs[c.name]) if runs.get(c.name, 1) > 1 else c for c in self.configs)
        object.__setattr__(self, "configs", configs)
