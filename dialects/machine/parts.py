"""The parts of a device: tables of numbers, each with its unit, its meaning and its least legal value.

A device file has one table per class here, one key per field. `Quantity` is what the loader checks the file against.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple


class Quantity(NamedTuple):
    """What a field of a device means: its unit in a device file, a line of text, and its least legal value."""

    unit: str
    doc: str
    low: float = 0


@dataclass(frozen=True)
class Grid:
    """Where the units sit. The mesh of switches is the unit grid and, on each side, one edge column of AGCUs:
    x = 0 and x = columns + 1 are the edges, units are at 1 ≤ x ≤ columns, 0 ≤ y < rows."""

    pattern: Annotated[
        str, Quantity("name", "'checkerboard': PCU where x + y is odd, else PMU; 'paired': one of each at a switch")
    ]
    columns: Annotated[int, Quantity("switches", "columns of units", low=1)]
    rows: Annotated[int, Quantity("switches", "rows of units", low=1)]
    tile_columns: Annotated[
        int, Quantity("tiles", "tiles side by side; a tile is the smallest part a program can be given", low=1)
    ]
    tile_rows: Annotated[int, Quantity("tiles", "tiles above each other", low=1)]
    dies: Annotated[int, Quantity("dies", "dies in the package, split along x", low=1)]
    agcu_edges: Annotated[int, Quantity("columns", "edge columns that hold AGCUs: 1 (left) or 2", low=1)]
    agcus_per_edge: Annotated[int, Quantity("units", "AGCUs in one edge column, spread evenly over the rows", low=1)]


@dataclass(frozen=True)
class Pcu:
    """Compute unit: header, body (lanes × stages of functional units), tail."""

    lanes: Annotated[int, Quantity("lanes", "SIMD lanes, the elements of one vector word", low=1)]
    stages: Annotated[int, Quantity("stages", "pipeline stages of the body", low=1)]
    systolic: Annotated[
        bool, Quantity("flag", "the body can be an output-stationary systolic array (else SIMD outer products)")
    ]
    inputs: Annotated[int, Quantity("vectors", "vector inputs", low=1)]
    outputs: Annotated[int, Quantity("vectors", "vector outputs", low=1)]
    fifo_depth: Annotated[int, Quantity("words", "vector words that an input FIFO holds", low=1)]
    registers: Annotated[int, Quantity("registers", "pipeline registers per lane and stage")]
    tail: Annotated[
        tuple[str, ...], Quantity("functions", "functions that the tail computes; others are expanded in the body")
    ]
    tail_rate: Annotated[float, Quantity("vectors/cycle", "vector words per cycle through the tail")]
    tail_latency: Annotated[int, Quantity("cycles", "pipeline depth of the tail")]
    expansion: Annotated[
        tuple[tuple[str, int], ...], Quantity("body ops", "body ops of a function that the tail lacks")
    ]


@dataclass(frozen=True)
class Pmu:
    """Memory unit: a banked scratchpad with its own address pipelines."""

    bytes: Annotated[int, Quantity("B", "capacity", low=1)]
    banks: Annotated[int, Quantity("banks", "banks", low=1)]
    word_bytes: Annotated[int, Quantity("B", "bytes one bank delivers per cycle", low=1)]
    read_ports: Annotated[int, Quantity("ports", "vector words read per cycle", low=1)]
    write_ports: Annotated[int, Quantity("ports", "vector words written per cycle, beside the reads", low=1)]
    addresses: Annotated[
        int, Quantity("addresses/cycle", "scalar addresses the address pipeline produces per cycle", low=1)
    ]
    diagonal: Annotated[
        bool, Quantity("flag", "rows can lie in diagonal stripes over the banks, so that columns come at full rate too")
    ]
    latency: Annotated[int, Quantity("cycles", "from address to data", low=0)]


@dataclass(frozen=True)
class Agcu:
    """Address generation and coalescing unit: fabric ↔ off-chip memory."""

    bytes_per_cycle: Annotated[
        int, Quantity("B/cycle", "bytes between fabric and off-chip memory per cycle, per AGCU", low=1)
    ]
    latency: Annotated[int, Quantity("cycles", "cycles through the AGCU, memory latency apart", low=0)]
    outstanding: Annotated[int, Quantity("requests", "bursts in flight", low=1)]
    burst_bytes: Annotated[int, Quantity("B", "bytes of one off-chip burst", low=1)]


@dataclass(frozen=True)
class Network:
    """The vector network: a mesh of switches; a link is one direction between two neighbouring switches."""

    link_bytes: Annotated[
        int, Quantity("B/cycle", "bytes of one vector word; a lane of a link moves one per cycle", low=1)
    ]
    links: Annotated[
        int, Quantity("lanes", "lanes of a link: vector words per cycle between two switches, one direction", low=1)
    ]
    hop_latency: Annotated[int, Quantity("cycles", "cycles per switch", low=1)]
    inject_latency: Annotated[
        int, Quantity("cycles", "cycles from a unit into its switch and back out, in total", low=0)
    ]
    fifo_depth: Annotated[int, Quantity("words", "words that a switch buffers per input and virtual channel", low=1)]
    virtual_channels: Annotated[int, Quantity("channels", "virtual channels that share a link", low=1)]
    flow_ids: Annotated[
        int,
        Quantity(
            "flows",
            "flows that one link can tell apart: those that branch, or do not go along x and then y; other words are "
            "forwarded by their destination",
            low=1,
        ),
    ]


@dataclass(frozen=True)
class Memory:
    """An off-chip memory."""

    bytes: Annotated[int, Quantity("B", "capacity", low=1)]
    bandwidth: Annotated[float, Quantity("B/s", "peak", low=1)]
    efficiency: Annotated[float, Quantity("ratio", "achievable share of the peak for long bursts")]
    latency: Annotated[float, Quantity("s", "of one access")]


@dataclass(frozen=True)
class Launch:
    """Cost of one launch: Program Load → Argument Load → Execute."""

    software: Annotated[float, Quantity("s", "orchestrated by the host")]
    hardware: Annotated[float, Quantity("s", "orchestrated by the AGCUs; 0 = the device cannot")]
    reconfigure: Annotated[
        float, Quantity("s", "the part of a launch that loads the program; saved when it is loaded already")
    ]


@dataclass(frozen=True)
class Sockets:
    """Several devices: nodes of devices that have links to each other, and switches between nodes. A link, and a way to
    the switches, has the given bandwidth in each direction at once."""

    count: Annotated[int, Quantity("sockets", "most devices that work on one program", low=1)]
    topology: Annotated[str, Quantity("name", "of a node: 'none', 'torus', 'all-to-all'")]
    node: Annotated[int, Quantity("sockets", "devices of a node", low=1)]
    columns: Annotated[int, Quantity("sockets", "columns of a node that is a torus; 0 for others")]
    link_bandwidth: Annotated[float, Quantity("B/s", "one link, one direction")]
    links: Annotated[int, Quantity("links", "links of a device to its node", low=0)]
    switch_bandwidth: Annotated[
        float, Quantity("B/s", "all links of a device to switches between nodes, one direction; 0: it has none")
    ]
    efficiency: Annotated[float, Quantity("ratio", "achievable share of a link's bandwidth for long messages")]
    header: Annotated[int, Quantity("B", "bytes that a message takes on a link beside its own")]
    latency: Annotated[
        float, Quantity("s", "of a message's protocol: room at the receiver, order, notice; links and AGCUs apart")
    ]
    link_latency: Annotated[float, Quantity("s", "of one link: coding, error correction, wire")]
    switch_latency: Annotated[float, Quantity("s", "of a switch between nodes, its links apart")]


@dataclass(frozen=True)
class ElementType:
    """Rates of one element type. A native type has rates; another runs as `emulated_as`, exactly, `multiplier` times as
    slowly."""

    name: str
    systolic: Annotated[float, Quantity("MAC/cycle/FU", "multiply-accumulates per cycle and functional unit")] = 0.0
    simd: Annotated[float, Quantity("op/cycle/FU", "other ops per cycle and functional unit")] = 0.0
    emulated_as: Annotated[str, Quantity("name", "native type that emulates this one; empty for a native type")] = ""
    multiplier: Annotated[float, Quantity("ratio", "cost of the emulation over its native type")] = 1.0
