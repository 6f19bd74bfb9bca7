"""check-native-types: the program computes in types that the device has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from headrace.dialects.machine.attributes import device_of
from headrace.dialects.machine.device import Device
from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import Collector
from headrace.dialects.support.journal import count
from headrace.dialects.tensor.base import TensorOp, tt
from headrace.dialects.tensor.indexing import Gather, Scatter
from headrace.dialects.tensor.storage import ConstantOp, WeightOp
from headrace.passes.analysis.views import is_movement
from headrace.passes.infra.base import Pass
from headrace.passes.tensor import _graph


@dataclass(frozen=True)
class CheckNativeTypesPass(Pass):
    """Refuse ops that compute in an element type that the device emulates, each with its place in the model, and what
    the emulation costs.

    Weights, constants and indices may have any type. Changes nothing.
    """

    name: ClassVar[str] = "check-native-types"
    requires = ensures = _graph.TENSOR

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        device = device_of(module)
        found = Collector()
        for block in _graph.blocks(module):
            for op in _graph.ops(block):
                emulated = _emulated(op, device)
                count("ops in native types", not emulated)
                for dtype in emulated:
                    entry = device.type(dtype)
                    found.add(
                        "emulated-type",
                        f"{op.name} computes in {dtype}, which {device.name} emulates",
                        why=f"{dtype} is made of {entry.emulated_as} and takes {entry.multiplier:g} times as long",
                        fix=f"compute in {entry.emulated_as}, or compile without --native-types",
                        location=locations.of(op),
                    )
        found.raise_if_any()
        return False


def _emulated(op: Operation, device: Device) -> list[str]:
    """The emulated types of what an op computes with and gives."""
    if not isinstance(op, TensorOp) or isinstance(op, WeightOp | ConstantOp) or is_movement(op):
        return []
    values = [x for x in (*op.operands, *op.results) if not isinstance(op, Gather | Scatter) or x is not op.indices]
    return [x for x in dict.fromkeys(tt(value).dtype for value in values) if not device.is_native(x)]
