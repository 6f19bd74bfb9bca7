"""`torch.compile(module, backend="headrace")`: the graphs that PyTorch captures, for inference and for training.

PyTorch cuts a program into graphs, says with which arguments each may be used, and calls what is made here. A graph of
inference reads its parameters as weights for as long as they stay as they are; in a graph of training they are inputs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from headrace.dialects.support.diagnostics import Collector, CompileError, nearest
from headrace.frontends.torch import breaks
from headrace.modules import ModuleExecutable

OPTIONS = ("device", "precision", "mode", "lower_ports", "native_types")


def backend(graph: Any, examples: Sequence[Any], options: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """A callable for a graph of PyTorch. `options` are those of `headrace.compile`, given as
    `torch.compile(module, backend="headrace", options={"precision": "bf16"})`."""
    import torch as library
    from torch._dynamo.backends.common import aot_autograd

    from headrace.frontends.torch.program import decompositions, plain_recurrence

    torch: Any = library
    breaks.watch(backend)
    breaks.report(graph)
    given = dict(options or {})
    wrong = Collector()
    for name in given.keys() - set(OPTIONS):
        fix = f"{nearest(name, OPTIONS)}; options are {', '.join(OPTIONS)}"
        wrong.add("bad-option", f"there is no option '{name}'", fix=fix)
    if wrong.diagnostics:
        return _Refused(CompileError.many(wrong.diagnostics))
    if any(isinstance(x, torch.SymInt) for x in examples) or any(
        isinstance(size, torch.SymInt) for x in examples if isinstance(x, torch.Tensor) for size in x.shape
    ):
        return _Shapes(graph, given)

    def inputs(found: Any, _: Any) -> Any:
        return _boxed(Graph(found, {}, given))

    def weights(found: Any, _: Any) -> Any:
        return _boxed(Graph(found, _static(), given))

    compiles: Any = aot_autograd(
        fw_compiler=inputs, bw_compiler=inputs, inference_compiler=weights, decompositions=decompositions()
    )
    with plain_recurrence():
        return compiles(graph, examples)


class _Refused:
    """Refuses when it is called: PyTorch makes an error of its own of one that is raised while it captures."""

    def __init__(self, error: CompileError) -> None:
        self.error = error

    def __call__(self, *_: Any) -> Any:
        raise self.error


def _boxed(run: Callable[..., Any]) -> Any:
    from torch._functorch._aot_autograd.utils import make_boxed_func

    return make_boxed_func(run)


def _static() -> dict[int, None]:
    """Positions of the parameters and buffers among the inputs of the graph that is compiled now, but for those that it
    changes itself (caches)."""
    from torch._guards import TracingContext

    context: Any = TracingContext.try_get()
    found = getattr(context, "fw_metadata", None)
    changed = frozenset(getattr(found, "mutated_inp_runtime_indices", ()))
    return dict.fromkeys(i for i in getattr(found, "static_input_indices", None) or () if i not in changed)


class Graph:
    """One graph; lowered when it is first called, as its weights are known then."""

    def __init__(self, graph: Any, static: Mapping[int, None], options: Mapping[str, Any]) -> None:
        self.graph = graph
        self.static = tuple(static)
        self.options = options
        self._seen: tuple[Any, ...] = ()
        self._weights: tuple[Any, ...] = ()
        self._run: ModuleExecutable | None = None

    def __call__(self, *given: Any) -> Any:
        """The results of the graph."""
        seen = tuple(_identity(given[i]) for i in self.static)
        if self._run is None or seen != self._seen:
            if self._run is not None:  # weights that change once change again
                kept = [k for k, was in enumerate(self._seen) if was == seen[k]]
                self.static, seen = tuple(self.static[k] for k in kept), tuple(seen[k] for k in kept)
            self._weights = tuple(given[i] for i in self.static)  # kept, so that no other comes to lie there
            self._run = self._lowered({i: given[i] for i in self.static})
            self._seen = seen
        if self._run.draws:  # under torch.manual_seed the same numbers, as of any op of PyTorch
            self._run.reset(seed=_drawn())
        return self._run(*given)

    def _lowered(self, weights: Mapping[int, Any]) -> ModuleExecutable:
        from headrace.compiler import compile
        from headrace.frontends.torch import GraphProgram

        return compile(GraphProgram(self.graph, weights), **self.options)


def _drawn() -> int:
    """A seed from PyTorch's generator."""
    import torch as library

    torch: Any = library
    return torch.empty((), dtype=torch.int64).random_().item()


def _identity(tensor: Any) -> tuple[int, int]:
    """Changes when a tensor is written or is another one."""
    version = 0
    with suppress(RuntimeError):  # tensors of inference mode count no writes
        version = tensor._version
    return tensor.data_ptr(), version


class _Shapes:
    """A graph that PyTorch captured for many shapes: one of fixed shapes for each that it is called with."""

    def __init__(self, graph: Any, options: Mapping[str, Any]) -> None:
        self.graph = graph
        self.options = options
        self._made: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *given: Any) -> Any:
        import torch as library
        from torch._subclasses.fake_tensor import FakeTensorMode

        torch: Any = library
        key = (
            torch.is_grad_enabled(),
            *((tuple(x.shape), x.dtype, x.requires_grad) if isinstance(x, torch.Tensor) else x for x in given),
        )
        made = self._made.get(key)
        if made is None:
            mode: Any = FakeTensorMode(allow_non_fake_inputs=True)
            examples = [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in given]
            made = self._made[key] = backend(self.graph, examples, self.options)
        return made(*given)


if "torch._dynamo" in sys.modules:  # it looks for the backend, and loads this file
    breaks.watch(backend)
