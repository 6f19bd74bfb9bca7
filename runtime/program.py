"""The routed program as plain data: what the artifact encodes and what the runtime executes and times.

A program is a list of *launches* of *configs* over *regions*. A config is one section resident on the chip: units
(groups of symmetric PCUs, PMUs and AGCUs) joined by flows. No IR, no NumPy computation here; `check_program` holds a
program to the rules that the plan and the literal executor rely on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

from headrace.dialects.support.access import Stream, View
from headrace.dialects.tensor.shapes import TT

if TYPE_CHECKING:
    import numpy as np

    Table = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True, slots=True)
class BodyOp:
    """One tensor op of a PCU body. Values are numbered: inputs first, then results in op order."""

    name: str
    attrs: Mapping[str, Any]
    operands: tuple[int, ...]
    results: tuple[int, ...]
    location: str = ""


@dataclass(frozen=True)
class Pcu:
    """A group of symmetric compute units. Each site runs `ops` on one tile per input port and step.

    `types[v]` is the per-site tile type of value v; `inputs` counts input ports (values 0 … inputs-1); output port p
    sends value `outputs[p]`. `mode` is `systolic` or `simd`. `sites` holds one (column, row) a site.
    """

    name: str
    mode: str
    inputs: int
    ops: tuple[BodyOp, ...]
    outputs: tuple[int, ...]
    types: tuple[TT, ...]
    sites: Table
    location: str = ""
    stages: int = 1

    kind = "pcu"


@dataclass(frozen=True)
class Pmu:
    """A group of memory units that holds one buffer of row-major logical `shape`, split over its sites in equal blocks
    of dim `split_dim` (all sites run the same address program and take the addresses that are theirs).

    The first `frames` time loops of every flow that ends here enumerate frames. A reader's frame may start when every
    writer has finished it; a writer waits while `copies` frames are not yet read by all readers. Cells that no writer
    writes hold `fill`. One that is `kept` is filled in the first run of a launch and holds that for the others.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    frames: int
    copies: int
    fill: float
    split_dim: int
    banks: int
    sites: Table
    location: str = ""
    kept: bool = False

    kind = "pmu"


@dataclass(frozen=True)
class Agcu:
    """An address generator at the edge of the fabric, bound to parameter `param` of the config.

    `direction`: `load` reads the parameter and sends tiles; `store` takes tiles and writes the parameter. `gather`
    takes a stream of row indices on port 0 and sends rows param[index]; `scatter` takes indices on port 0 and rows on
    port 1 and writes param[index] = row. Rows are along dim 0; negative indices count from the end.
    """

    name: str
    direction: str
    param: int
    sites: Table
    location: str = ""

    kind = "agcu"


Unit = Pcu | Pmu | Agcu


@dataclass(frozen=True)
class Flow:
    """One stream from a unit's port to another's. Units are numbered within the config.

    The view of an end is the address program of a PMU or AGCU there: where the denoted tensor lies in the buffer's or
    parameter's row-major space; a PCU end has none (tiles arrive in order). `pairs` lists which source site sends to
    which destination site; `links[starts[i]:starts[i+1]]` are the mesh links of pair i, in order.
    """

    src: int
    src_port: int
    dst: int
    dst_port: int
    stream: Stream
    src_view: View | None
    dst_view: View | None
    pairs: Table
    starts: Table
    links: Table
    credits: int = 2


@dataclass(frozen=True, slots=True)
class Param:
    """A tensor that a config takes at launch: `direction` is `in`, `out` or `inout`."""

    name: str
    type: TT
    direction: str


@dataclass(frozen=True)
class Config:
    """One chip configuration: what is resident together."""

    name: str
    params: tuple[Param, ...]
    units: tuple[Unit, ...]
    flows: tuple[Flow, ...]


@dataclass(frozen=True, slots=True)
class Region:
    """Off-chip memory of one tensor. `kind`: input, output, weight, state or temp. `address` in bytes within `memory`
    (`hbm` or `ddr`). `key` names the weight. `runs` tensors of that type lie one behind the other, one a run."""

    name: str
    kind: str
    type: TT
    memory: str
    address: int
    key: str = ""
    runs: int = 1


@dataclass(frozen=True, slots=True)
class Launch:
    """Run a config `runs` times, one run behind the other and without a pause. `args[i]` gives parameter i as (region
    number, element offset); the parameter is dense row-major from there, in run r of the tensor of run r of a region
    that has several. `mode`: `sw` (host-orchestrated) or `hw`."""

    config: int
    args: tuple[tuple[int, int], ...]
    mode: str = "sw"
    location: str = ""
    runs: int = 1


@dataclass(frozen=True, slots=True)
class LaunchLoop:
    """Launches that the chip repeats by itself: `times` rounds of `period` launches, from launch `first` on. Every
    round launches the same configs, with parameters a constant number of bytes after those of the round before."""

    first: int
    period: int
    times: int

    @property
    def end(self) -> int:
        """The number of the launch after it."""
        return self.first + self.period * self.times


@dataclass(frozen=True, slots=True)
class Port:
    """A named input or output of the program: a dense tensor at an element offset of a region."""

    name: str
    type: TT
    region: int
    offset: int = 0


@dataclass(frozen=True)
class Program:
    """A whole routed program. `states` lists (input name, output name) that share one buffer kept between runs; `loops`
    says which of the launches the chip repeats.
    It is what one socket runs: `mesh` has the sizes of the axes that sockets are numbered over, row-major (empty for
    one socket), and `shardings` by port for each dim the axes that it is cut over; types of ports are those of one
    socket. `stacks` says which ports of the whole program a port is, by the socket's place on axis `pp`.
    `device` is the device description as plain data; `meta` holds what reports need (model name, pipeline, options)."""

    device: Mapping[str, Any]
    regions: tuple[Region, ...]
    configs: tuple[Config, ...]
    launches: tuple[Launch, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    states: tuple[tuple[str, str], ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    loops: tuple[LaunchLoop, ...] = ()
    mesh: Mapping[str, int] = field(default_factory=dict[str, int])
    shardings: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict[str, tuple[tuple[str, ...], ...]])
    stacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    @property
    def sockets(self) -> int:
        """How many sockets run it."""
        return prod(self.mesh.values())

    def whole(self, port: Port) -> TT:
        """The type of a port over all sockets."""
        dims = self.shardings.get(port.name, ((),) * len(port.type.shape))
        shape = [n * prod(self.mesh.get(a, 1) for a in x) for n, x in zip(port.type.shape, dims, strict=False)]
        return TT(tuple(shape), port.type.dtype)

    @property
    def runs(self) -> int:
        """How many inputs the program takes at a time."""
        return max((launch.runs for launch in self.launches), default=1)


def elements(shape: tuple[int, ...]) -> int:
    """Number of elements of a shape."""
    return prod(shape)
