"""What PyTorch computes for an exported program: its results, and what each call gives by its place in the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.dialects.support.diagnostics import CompileError
from headrace.frontends.torch.dims import bound
from headrace.frontends.torch.importer import named_text, node_location, to_array
from headrace.frontends.torch.program import lowered
from headrace.frontends.torch.weights import matched, read, to_tensor

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]


def run(
    program: Any, dims: Mapping[str, int], shapes: Mapping[str, Any], weights: Any, inputs: Mapping[str, Array]
) -> tuple[list[Array], dict[str, list[Array]]]:
    """The flat results of a program, buffers that it changes included, and the results of its calls by place. `inputs`
    go by the names of the imported program's inputs."""
    import torch as library
    from torch.export.graph_signature import InputKind
    from torch.utils._pytree import tree_leaves

    torch: Any = library
    given = matched(program.state_dict, read(weights)) if weights is not None else {}
    program = lowered(bound(program, dims, shapes))
    tensors = {**program.constants, **program.state_dict, **given}
    values: list[Any] = []
    for spec in program.graph_signature.input_specs:
        if spec.kind == InputKind.USER_INPUT:
            name = getattr(spec.arg, "name", "")
            values.append(to_tensor(inputs[name].copy()) if name in inputs else getattr(spec.arg, "value", None))
        elif spec.kind != InputKind.TOKEN:
            held = to_tensor(inputs[spec.target].copy()) if spec.target in inputs else tensors[spec.target]
            values.append(held.detach())
    places: dict[str, list[Array]] = {}

    class Recorder(torch.fx.Interpreter):
        """Notes what calls give."""

        def run_node(self, n: Any) -> Any:
            found: Any = torch.fx.Interpreter.run_node(self, n)
            if n.op == "call_function":
                arrays = [to_array(x) for x in tree_leaves(found) if isinstance(x, torch.Tensor)]
                places.setdefault(named_text(node_location(n)), []).extend(arrays)
            return found

    try:
        with torch.no_grad():
            results = Recorder(program.graph_module).run(*values, enable_io_processing=False)
    except Exception as error:
        what = f"PyTorch does not run the program: {type(error).__name__}: {error}"
        raise CompileError("no-reference", what, fix="record the outputs: --expected NPZ") from error
    return [to_array(x) for x in results if isinstance(x, torch.Tensor)], places
