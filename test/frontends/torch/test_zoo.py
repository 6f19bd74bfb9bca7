"""Unmodified models, small and random, end to end: compiled, run, and held to PyTorch in numbers and in structure.

A handful runs by default, one of each kind; all of them with

    pytest test/frontends/torch/test_zoo.py test/frontends/torch/test_decode.py -m "full or not full"
    PYTHONPATH=test python test/frontends/torch/test_zoo.py [NAME …]     prints the table of errors
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Any

import pytest
from torch_zoo_models import NAMES, model

import headrace
from headrace import CompileError

torch: Any = pytest.importorskip("torch")

TOLERANCE = 1e-4
QUICK = {"nn_attention", "nn_cnn", "nn_mha", "hf_llama", "hf_mixtral", "hf_t5", "hf_vit"}
"""What runs by default."""


def leaves(result: Any) -> tuple[list[Any], Any]:
    """The tensors of a result and its structure; keys and classes are part of that."""
    from torch.utils._pytree import tree_flatten

    return tree_flatten(result)


def deviation(name: str) -> tuple[float, float]:
    """The largest error of a model against PyTorch, on the arguments that it was compiled with and on others of the
    same shapes, and the CPU seconds that it took to compile."""
    module, args, kwargs = model(name)
    begin = time.process_time()
    executable = headrace.compile(module, example_inputs=args, example_kwargs=kwargs)
    seconds = time.process_time() - begin
    worst = 0.0
    for again in (False, True):
        if again:
            args, kwargs = others(args, kwargs)
        with torch.no_grad():
            wanted, wanted_structure = leaves(module(*args, **kwargs))
        result = executable(*args, **kwargs)
        found, structure = leaves(result)
        assert structure == wanted_structure
        for x, y in zip(found, wanted, strict=True):
            if isinstance(y, torch.Tensor):
                assert (x.shape, x.dtype) == (y.shape, y.dtype)
                distance = (x.double() - y.double()).abs().nan_to_num(nan=float("inf"))
                worst = max(worst, distance.max().item())
            else:
                assert x == y
    return worst, seconds


def others(args: Any, kwargs: Any) -> Any:
    """Other arguments of the same shapes: elements in reverse order, so that they stay what they are good for, and
    masks of ones hide the last element."""
    from torch.utils._pytree import tree_map

    def other(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        x = x.flatten().flip(0).reshape(x.shape)
        if (x == 1).all():
            x[..., -1] = 0
        return x

    return tree_map(other, args), tree_map(other, kwargs)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.full) for n in NAMES])
def test_a_model_computes_what_pytorch_does(name: str) -> None:
    assert deviation(name)[0] < TOLERANCE


def main(names: list[str]) -> None:
    """Print a table of models."""
    print(f"{'model':24} {'error':>8}  compile")
    for name in names or NAMES:
        try:
            error, seconds = deviation(name)
            print(f"{name:24} {error:8.1e} {seconds:7.1f} s", flush=True)
        except CompileError as refused:
            kinds = Counter(d.what for d in refused.diagnostics)
            print(f"{name:24} refused: {'; '.join(kinds)[:200]}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
