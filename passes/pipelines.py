"""Pipelines as data: phases of the compiler by name, each a text that `headrace-opt -p` takes."""

from __future__ import annotations

TENSOR = (
    "canonicalize",  # movement chains in normal form before patterns look at them
    "cse",
    "fold-constants",  # so that fuse sees constants that the exporter computed
    "fuse",  # exporters spell gelu, norms and silu in primitives; a unit runs them whole
    "simplify-views",
    "fold-batch-norm",  # before decompose takes the norm apart
    "decompose",  # what is left and no unit runs whole
    "expose-padding",  # so that windows can be cut, and padding becomes part of a buffer
    "linearize-scatters",  # before folding, which turns its index arithmetic into constants where it can
    "fold-constants",  # transposed weights and the like become derived keys
    "canonicalize",  # folding leaves moves of moves
    "cse",
    "dce",
    "outline-repeated-layers",  # before any mapping, so that a layer is mapped once
)
DATAFLOW = (
    "convert-tensor-to-dataflow",
    "fuse-stages",
    "narrow-joins",
    "choose-layouts",  # before tiling: address programs do not change with tiles
    "tile",
    "cut-sections",  # after tiling, so that buffers are counted as they will be
    "parallelize",
    "size-buffers",
    "bank-memories",
    "check-deadlock",
)
RDU = (
    "convert-dataflow-to-rdu",
    "split-to-units",
    "allocate-memory",
    "place",
    "route",
    "check-resources",
)
PHASES: dict[str, tuple[str, ...]] = {"tensor": TENSOR, "dataflow": DATAFLOW, "rdu": RDU}
PIPELINES: dict[str, str] = {
    **{name: ",".join(passes) for name, passes in PHASES.items()},
    "default": ",".join((*TENSOR, *DATAFLOW, *RDU)),
}
"""Named pipelines: the three phases, and `default`, all of them."""
