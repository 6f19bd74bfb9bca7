"""Functions of PyTorch tensors, imported and run by the reference interpreter: what an importer's test compares."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from headrace.dialects.support import dtypes
from headrace.dialects.tensor.interpreter import run_function
from headrace.frontends.torch import export, import_program

torch: Any = pytest.importorskip("torch")
Function = Callable[..., Any]


class Calls(torch.nn.Module):
    """Calls functions on the same tensors; gives the results by name."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        torch.nn.Module.__init__(self)
        self.functions = functions

    def forward(self, *inputs: Any) -> Any:
        return {name: function(*inputs) for name, function in self.functions.items()}


def _array(x: Any) -> Any:
    return x.view(torch.int16).numpy().view(dtypes.to_numpy("bf16")) if x.dtype == torch.bfloat16 else x.numpy()


def _tensor(x: Any) -> Any:
    if dtypes.from_numpy(x.dtype) == "bf16":
        return torch.from_numpy(x.view("int16").copy()).view(torch.bfloat16)
    return torch.from_numpy(x.copy())


def interpreted(functions: Mapping[str, Function], inputs: Sequence[Any]) -> dict[str, Any]:
    """The results of the functions by the meaning of what they are imported as."""
    call = import_program(export(Calls(functions), tuple(inputs)))
    call.result.module.verify()
    given = {name: _array(x) for name, x in zip(call.inputs, inputs, strict=True) if name is not None}
    results = run_function(call.result.module, "main", given, call.result.store)
    return torch.utils._pytree.tree_unflatten([_tensor(results[x.name]) for x in call.outputs], call.out_spec)


def accepted(functions: Mapping[str, Function], *inputs: Any) -> dict[str, Function]:
    """The functions that PyTorch has for these types."""
    found: dict[str, Function] = {}
    for name, function in functions.items():
        try:
            function(*inputs)
        except (RuntimeError, TypeError):
            continue
        found[name] = function
    assert len(found) > len(functions) // 3
    return found


def check(functions: Mapping[str, Function], *inputs: Any, **tolerance: float) -> None:
    """The functions give the numbers, the types and the shapes that PyTorch gives."""
    got = interpreted(functions, inputs)
    wrong: list[str] = []
    for name, function in functions.items():
        want = function(*inputs)
        try:
            torch.testing.assert_close(got[name], want, equal_nan=True, check_stride=False, **tolerance)
        except AssertionError as error:
            wrong.append(f"{name}: {error}\ngot {got[name]}\nwant {want}")
    assert not wrong, "\n".join(wrong)
