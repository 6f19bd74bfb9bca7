"""A training step as one program: `step = headrace.compile_training(model, optimizer, loss, example_inputs=…)`.

for x, y in data:
    loss = step(x, y)     # forward, loss, backward and optimizer, on the device
step.sync()               # parameters and the optimizer's state, back into PyTorch
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.dialects.support.diagnostics import Collector, nearest
from headrace.modules import ModuleExecutable, needs_torch, to_tensor

if TYPE_CHECKING:
    from headrace.frontends.torch import ImportedProgram
    from headrace.frontends.torch.training import Training
    from headrace.runtime.session import Executable


def compile_training(
    model: Any,
    optimizer: Any,
    loss: Callable[..., Any] | None = None,
    *,
    example_inputs: Sequence[Any] = (),
    example_targets: Sequence[Any] = (),
    example_kwargs: Mapping[str, Any] | None = None,
    max_norm: float | None = None,
    precision: str = "fp32",
    **options: Any,
) -> TrainingStep:
    """Compile forward, loss, backward and the optimizer's step into one program.

    `model` and `optimizer` are PyTorch's, `loss(outputs, *targets)` gives a scalar, or a scalar and more tensors that
    the step gives, too; without a loss the model gives it itself, alone or as `.loss`. The model is taken in the mode
    in which it is: call `model.train()` before. `max_norm` clips the gradients' norm as
    `torch.nn.utils.clip_grad_norm_` does. `precision="bf16"` computes model and loss as under `torch.autocast`; what
    is trained, and the optimizer's state, keep their types. `options` are those of `headrace.compile`. `CompileError`
    lists everything that cannot be compiled.
    """
    needs_torch("compiling a training step")
    from headrace.compiler import check_options, translate
    from headrace.executable import compiled
    from headrace.frontends.torch.training import capture

    inputs, targets = (x if isinstance(x, tuple | list) else (x,) for x in (example_inputs, example_targets))
    _check(options)
    check_options(precision)
    found = capture(model, optimizer, loss, inputs, targets, example_kwargs, max_norm, precision == "bf16")
    done = translate(found.program, **options)
    assert done.call is not None
    return TrainingStep(compiled(done), done.call, found, optimizer)


OPTIONS = (
    *("device", "seed", "mode", "fusion_rules", "native_types", "mesh"),
    *("opt", "pipeline", "watch", "on_phase", "progress"),
)


def _check(options: Mapping[str, Any]) -> None:
    """Refuse options that a training step has not."""
    wrong = Collector()
    for name in options.keys() - set(OPTIONS):
        known = (*OPTIONS[:6], "precision", "max_norm")
        wrong.add("bad-option", f"a training step has no option '{name}'", fix=nearest(name, known))
    wrong.raise_if_any()


class TrainingStep(ModuleExecutable):
    """A training step. Called with the model's inputs and the targets, it gives the loss (and what else the loss
    function gives). Parameters, buffers and the optimizer's state live in the executable: they are read from model and
    optimizer at the first call and at `reset()`, and `sync()` writes them back. Learning rates, and momentum
    that a scheduler cycles, are read from the optimizer at each call, so schedulers work as they do in PyTorch."""

    def __init__(self, executable: Executable, call: ImportedProgram, training: Training, optimizer: Any) -> None:
        super().__init__(executable, call)
        self._training = training
        self._optimizer = optimizer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Take one step."""
        self._training.check()
        results = super().__call__(*args, **kwargs)
        return results[0] if len(results) == 1 else tuple(results)

    def _first(self) -> dict[str, Any]:
        from headrace.frontends.torch.importer import to_array

        return {**super()._first(), **{name: to_array(x) for name, x in self._training.state().items()}}

    def _more(self) -> Mapping[str, Any]:
        import numpy as np

        return {name: np.float32(rate.of(self._optimizer)) for name, rate in self._training.rates.items()}

    def sync(self) -> None:
        """Write what the steps have made of parameters, buffers and the optimizer's state into model and optimizer."""
        import torch

        found = self.executable.state() if self._started else {}
        with torch.inference_mode(False), torch.no_grad():
            for name, tensor in self._training.tensors.items():
                if name in found:
                    tensor.copy_(to_tensor(found[name]))
            for slot in self._training.slots:
                if slot.state not in found:
                    continue
                made = to_tensor(found[slot.state])
                for name in slot.parameters:
                    kept = self._optimizer.state[self._training.tensors[name]]
                    if isinstance(kept.get(slot.key), torch.Tensor):
                        kept[slot.key].copy_(made)
                    else:
                        kept[slot.key] = made.to(slot.first.dtype, copy=True)
