"""A training step as one graph: forward, loss, backward and optimizer.

    found = capture(model, optimizer, loss, (x,), (y,))
    imported = import_graph(found.program)

Parameters, slots of the optimizer, and buffers that the step changes are states. The optimizer's own step is traced on
tensors that stand for them, so one whose step is arithmetic is taken as it is. Learning rates are inputs, as schedulers
change them from step to step.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from headrace.dialects.support.diagnostics import Collector, CompileError
from headrace.frontends.torch.importer import GraphProgram, State
from headrace.frontends.torch.lines import user_line
from headrace.frontends.torch.program import decompositions, export, first_line, quiet

MODEL = "model"
"""What the model is called in the module that joins it and its loss."""


@dataclass(frozen=True)
class Slot:
    """A tensor that an optimizer keeps: the state's name, the parameters that it belongs to, and its key there."""

    state: str
    parameters: tuple[str, ...]
    key: str
    first: Any
    """What it holds at first."""


@dataclass(frozen=True)
class Training:
    """A captured step, and what its states are in the model and in the optimizer."""

    program: GraphProgram
    tensors: Mapping[str, Any]
    """Parameters and buffers that the step changes, by state."""
    slots: tuple[Slot, ...]
    rates: Mapping[str, int]
    """For each input that is a learning rate, the optimizer's group of parameters."""


def capture(
    model: Any,
    optimizer: Any,
    loss: Callable[..., Any] | None,
    inputs: Sequence[Any],
    targets: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    max_norm: float | None = None,
) -> Training:
    """The graph of one training step on example inputs and targets.

    `loss(outputs, *targets)` gives the loss, or the loss and more tensors, which the step gives, too; without it the
    model gives its loss itself, alone or as `.loss`. `max_norm` clips the norm of all gradients. `CompileError` says
    what cannot be captured.
    """
    groups = _groups(model, optimizer)
    joint = _Joint(model, loss, inputs, targets, dict(kwargs or {}))
    trained = {name: joint.parameters[name] for name in groups if name in joint.gradients}
    if not trained:
        raise CompileError("bad-model", "no parameter of the optimizer has a gradient: there is nothing to train")
    slots = _slots(optimizer, {name: groups[name] for name in trained}, trained)
    changed = {name: joint.buffers[name] for name in joint.changed}
    rates = {_of("lr", i): i for i in sorted({groups[name] for name in trained}) if "lr" in optimizer.param_groups[i]}
    tensors = {**trained, **changed}
    states = {**tensors, **{slot.state: slot.first for slot in slots}}
    fixed = {name: t for name, t in {**joint.parameters, **joint.buffers}.items() if name not in states}

    def step(given: Sequence[Any]) -> list[Any]:
        left = iter(given)
        data = [next(left) for _ in joint.examples]
        state: dict[str, Any] = {name: next(left) for name in states}
        rate = {index: next(left) for index in rates.values()}
        results, gradients, after = joint.run(data, state | {name: next(left) for name in fixed})
        if max_norm is not None:
            with _at("optimizer"):
                factor = _clipped(list(gradients.values()), max_norm)
                gradients = {name: gradient * factor for name, gradient in gradients.items()}
        for name in trained:
            mine = [slot for slot in slots if name in slot.parameters]
            kept = {slot.key: state[slot.state] for slot in mine}
            with _at(f"optimizer/{name}"):
                index = groups[name]
                after[name], made = _stepped(optimizer, index, state[name], gradients[name], rate.get(index), kept)
            after.update({slot.state: made[slot.key] for slot in mine})
        return [*results, *(after[name] for name in states)]

    import torch

    count, last = len(joint.examples), len(joint.examples) + len(states)
    first = [torch.tensor(float(optimizer.param_groups[i]["lr"])) for i in rates.values()]
    graph = _traced(step, [*joint.examples, *states.values(), *first, *fixed.values()], optimizer)
    program = GraphProgram(
        graph,
        weights=dict(enumerate(fixed.values(), last + len(rates))),
        names=dict(enumerate((*joint.names, *states, *rates, *fixed))),
        states={count + i: State(joint.results + i, tensor) for i, tensor in enumerate(states.values())},
        arguments=count,
        spec=joint.spec,
    )
    return Training(program, tensors, slots, rates)


def _of(name: str, group: int) -> str:
    """The name of something that each group of parameters has."""
    return f"{name}.{group}" if group else name


def _groups(model: Any, optimizer: Any) -> dict[str, int]:
    """The optimizer's group of each of the model's parameters that it has."""
    import torch

    if not isinstance(model, torch.nn.Module) or not isinstance(optimizer, torch.optim.Optimizer):
        raise CompileError(
            "bad-model",
            f"a training step is made of a torch.nn.Module and a torch.optim.Optimizer, not of a "
            f"{type(model).__name__} and a {type(optimizer).__name__}",
        )
    if inspect.signature(_step(optimizer)).parameters["closure"].default is inspect.Parameter.empty:
        raise CompileError(
            "not-supported",
            f"the step of {type(optimizer).__name__} evaluates the loss as often as it likes",
            why="a program takes one loss and one step",
            fix="use Adam, AdamW, SGD, or another optimizer whose step needs no closure",
        )
    names = {id(p): name for name, p in model.named_parameters()}
    found: dict[str, int] = {}
    foreign: list[str] = []
    for index, group in enumerate(optimizer.param_groups):
        for p in group["params"]:
            if id(p) in names:
                found[names[id(p)]] = index
            else:
                foreign.append(f"{tuple(p.shape)}")
    if foreign:
        raise CompileError(
            "bad-model",
            f"the optimizer has {len(foreign)} parameters that the model has not, of shapes {', '.join(foreign[:5])}",
            fix="make it of model.parameters()",
        )
    return found


class _Joint:
    """Forward, loss and backward as a graph of flat tensors."""

    def __init__(
        self,
        model: Any,
        loss: Callable[..., Any] | None,
        inputs: Sequence[Any],
        targets: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> None:
        import torch
        from torch.utils._pytree import tree_flatten

        if not inputs and not kwargs:
            export(model, ())  # which says what examples are missing
        flat, self.spec = tree_flatten(((*inputs, *targets), dict(kwargs)))
        whole = _with_loss(model, loss, len(inputs), self.spec, flat)
        self.examples = [x for x in flat if isinstance(x, torch.Tensor)]
        if len(self.examples) < len(flat):
            raise CompileError(
                "bad-input",
                "a training step takes tensors only",
                why=f"one of its arguments is {next(x for x in flat if not isinstance(x, torch.Tensor))!r}",
                fix="give it by functools.partial, or to the model's constructor",
            )
        self.names = _names(model, len(inputs), (*inputs, *targets), kwargs)
        program = export(whole, self.examples, grad=True)
        with ExitStack() as stack, quiet():
            try:
                from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

                found = aot_export_joint_with_descriptors(
                    stack,
                    program.module(),
                    tuple(self.examples),
                    decompositions=decompositions(),
                    _record_nn_module_stack=True,
                )
            except CompileError:
                raise
            except Exception as error:
                raise CompileError(
                    "not-exportable",
                    f"{type(model).__name__} has no backward graph: {first_line(error)}",
                    location=user_line(error),
                ) from error
            self.graph: Any = found.graph_module
        self.parameters: dict[str, Any] = dict(model.named_parameters())
        self.buffers: dict[str, Any] = dict(model.named_buffers())
        same = {id(x): name for name, x in (self.parameters | self.buffers).items()}
        self._known: dict[str, str] = {
            f"{MODEL}.{name}": same[id(x)]
            for x_of in (model.named_parameters, model.named_buffers)
            for name, x in x_of(remove_duplicate=False)
        }
        for target, tensor in {**program.state_dict, **program.constants}.items():  # of the loss, or written as numbers
            if target not in self._known and isinstance(tensor, torch.Tensor):
                self.buffers[target] = tensor
        self._read()

    def _read(self) -> None:
        """What each input and output of the graph is."""
        from torch._functorch._aot_autograd import descriptors as kinds

        self._inputs: list[Any] = []
        for node in self.graph.graph.find_nodes(op="placeholder"):
            desc = node.meta.get("desc")
            if isinstance(desc, kinds.ParamAOTInput | kinds.BufferAOTInput):
                self._inputs.append(self._name(desc.target))
            elif isinstance(desc, kinds.PlainAOTInput):
                self._inputs.append(desc.idx)
            elif isinstance(desc, kinds.TangentAOTInput):
                self._inputs.append(node.meta["val"])
            else:
                raise CompileError("not-exportable", f"the backward graph has an input that is {desc}")
        self._outputs: list[tuple[str, Any]] = []
        for desc in self.graph.graph.output_node().meta["desc"]:
            if desc is None:
                self._outputs.append(("", None))
            elif isinstance(desc, kinds.PlainAOTOutput):
                self._outputs.append(("result", desc.idx))
            elif isinstance(desc, kinds.InputMutationAOTOutput) and isinstance(
                desc.mutated_input, kinds.BufferAOTInput
            ):
                self._outputs.append(("changed", self._name(desc.mutated_input.target)))
            elif isinstance(desc, kinds.GradAOTOutput) and isinstance(desc.grad_of, kinds.ParamAOTInput):
                self._outputs.append(("gradient", self._name(desc.grad_of.target)))
            elif isinstance(desc, kinds.GradAOTOutput):
                self._outputs.append(("", None))  # of an input
            else:
                raise CompileError("not-exportable", f"the backward graph has an output that is {desc}")
        values = self.graph.graph.output_node().args[0]
        self.results = sum(kind == "result" for kind, _ in self._outputs)
        self.changed = [name for kind, name in self._outputs if kind == "changed"]
        self.gradients = {
            name for (kind, name), x in zip(self._outputs, values, strict=True) if kind == "gradient" and x is not None
        }
        for node in self.graph.graph.nodes:
            stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
            node.meta["nn_module_stack"] = {
                key: (str(path).removeprefix(MODEL).removeprefix("."), kind) for key, (path, kind) in stack.items()
            }

    def _name(self, target: str) -> str:
        """The model's name of a parameter or buffer."""
        return self._known.get(target, target)

    def run(self, data: Sequence[Any], tensors: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
        """Results, gradients by parameter, and changed buffers; nodes that are traced meanwhile lie where those of the
        graph do."""
        import torch

        given = [
            tensors[x] if isinstance(x, str) else data[x] if isinstance(x, int) else torch.ones(x.shape, dtype=x.dtype)
            for x in self._inputs
        ]
        made = torch.fx.Interpreter(self.graph).run(*given, enable_io_processing=False)
        results: dict[int, Any] = {}
        gradients: dict[str, Any] = {}
        changed: dict[str, Any] = {}
        for (kind, name), x in zip(self._outputs, made, strict=True):
            if x is None:
                continue
            if kind == "result":
                results[name] = x
            elif kind == "changed":
                changed[name] = x
            elif kind == "gradient":  # parameters that are tied have one each
                gradients[name] = gradients[name] + x if name in gradients else x
        return [results[i] for i in sorted(results)], gradients, changed


def _with_loss(model: Any, loss: Callable[..., Any] | None, count: int, spec: Any, flat: Sequence[Any]) -> Any:
    """A module of flat tensors that gives the loss, and whatever else the loss function gives."""
    import torch
    from torch.utils._pytree import tree_unflatten

    class WithLoss(torch.nn.Module):
        """A model and its loss."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.train(model.training)
            if isinstance(loss, torch.nn.Module):
                self.loss = loss

        def forward(self, *tensors: Any) -> Any:
            args, kwargs = tree_unflatten(list(tensors), spec)
            made = self.model(*args[:count], **kwargs)
            if loss is not None:
                made = loss(made, *args[count:])
            elif hasattr(made, "loss"):
                made = made.loss
            found = tuple(made) if isinstance(made, tuple | list) else (made,)
            if not isinstance(found[0], torch.Tensor) or found[0].numel() != 1:
                given = f"{tuple(found[0].shape)}" if isinstance(found[0], torch.Tensor) else type(found[0]).__name__
                raise CompileError(
                    "bad-model",
                    f"the loss is no single number but {given}",
                    fix="give loss=..., a function of the model's outputs and the targets that returns a scalar",
                )
            return found[0], *(x.detach() for x in found[1:])

    return WithLoss()


def _names(model: Any, inputs: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """Names of the flat tensors: those of the model's arguments, and `target`."""
    from torch.utils._pytree import keystr, tree_flatten_with_path

    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    own = [p.name for p in inspect.signature(model.forward).parameters.values() if p.kind in kinds]
    names = [own[i] if i < len(own) else f"input_{i}" for i in range(inputs)]
    names += [_of("target", i) for i in range(len(args) - inputs)]
    found: list[str] = []
    for name, x in (*zip(names, args, strict=True), *kwargs.items()):
        found += [f"{name}{keystr(path)}" for path, _ in tree_flatten_with_path(x)[0]]
    return found


# The optimizer


def _slots(optimizer: Any, groups: Mapping[str, int], trained: Mapping[str, Any]) -> tuple[Slot, ...]:
    """What the optimizer keeps; parameters of a group whose counts of steps are equal share one."""
    errors = Collector()
    found: list[Slot] = []
    counts: dict[tuple[int, float], list[str]] = defaultdict(list)
    steps: dict[tuple[int, float], Any] = {}
    for name, p in trained.items():
        kept: Mapping[str, Any] = optimizer.state.get(p) or _first(optimizer, groups[name], p)
        for key, tensor in kept.items():
            import torch

            if tensor is None:
                continue
            if not isinstance(tensor, torch.Tensor):
                errors.add(
                    "bad-model",
                    f"{type(optimizer).__name__} keeps '{key}', which is a {type(tensor).__name__} and no tensor",
                    fix="use Adam, AdamW, SGD, or another whose state is tensors",
                )
            elif key == "step" and tensor.numel() == 1:
                count = groups[name], float(tensor)
                counts[count].append(name)
                steps[count] = tensor.reshape(()).to(torch.float32)
            else:
                found.append(Slot(f"{name}.{key}", (name,), key, tensor))
    errors.raise_if_any()
    shared = [Slot(_of("step", i), tuple(names), "step", steps[c]) for i, (c, names) in enumerate(counts.items())]
    return (*found, *shared)


def _first(optimizer: Any, group: int, p: Any) -> dict[str, Any]:
    """What an optimizer keeps for a parameter before its first step."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    if not hasattr(optimizer, "_init_group"):
        raise CompileError(
            "not-supported",
            f"what {type(optimizer).__name__} keeps before its first step is not known",
            fix="take one step in PyTorch before, or use Adam, AdamW or SGD",
        )
    like = torch.nn.Parameter(torch.zeros_like(p, memory_format=torch.contiguous_format))
    like.grad = torch.zeros_like(like)
    made = _standing(optimizer, group, like, None, {})
    lists = list(inspect.signature(made._init_group).parameters)[1:]
    made._init_group(made.param_groups[0], *([] for _ in lists))
    kept = dict(made.state[like])
    with _refusing(optimizer), FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = {key: mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for key, x in kept.items()}
        fake = mode.from_tensor(like.detach())
        _, after = _stepped(optimizer, group, fake, fake.clone(), None, fakes)
    added = [key for key, x in after.items() if key not in kept and x is not None]
    if added:  # SGD keeps the first gradient, which is what the recurrence gives when it starts at zero
        if not isinstance(optimizer, torch.optim.SGD) or optimizer.param_groups[group]["dampening"]:
            raise CompileError(
                "not-supported",
                f"{type(optimizer).__name__} treats its first step in another way than those that follow",
                why=f"it is then that it makes {', '.join(added)}",
                fix="take one step in PyTorch before",
            )
        kept.update({key: torch.zeros_like(like.detach()) for key in added})
    return kept


def _step(optimizer: Any) -> Any:
    """The function that takes an optimizer's step, without what PyTorch wraps it in."""
    return inspect.unwrap(type(optimizer).step)


def _standing(optimizer: Any, group: int, p: Any, rate: Any, kept: Mapping[str, Any]) -> Any:
    """An optimizer of the same kind that has one parameter, and takes its step in plain tensor arithmetic."""
    made = object.__new__(type(optimizer))
    made.__dict__.update(optimizer.__dict__)
    options: dict[str, Any] = {**optimizer.param_groups[group], "params": [p]}
    options.update({key: value for key, value in (("foreach", False), ("fused", None)) if key in options})
    if "capturable" in options:
        options["capturable"] = True  # the count of steps is a tensor
    if rate is not None:
        options["lr"] = rate
    made.param_groups = [options]
    made.state = defaultdict(dict)
    made.state[p] = dict(kept)
    return made


def _stepped(
    optimizer: Any, group: int, p: Any, gradient: Any, rate: Any, kept: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """A parameter and what the optimizer keeps for it, after its step."""
    import torch

    keys = list(kept)

    def take(p: Any, gradient: Any, *given: Any) -> Any:
        p, *slots = (x.clone() for x in (p, *given[len(rates) :]))
        p.grad = gradient
        made = _standing(optimizer, group, p, given[0] if rates else None, dict(zip(keys, slots, strict=True)))
        _step(optimizer)(made)
        return p, dict(made.state[p])

    rates = [] if rate is None else [rate]
    with torch.no_grad(), _compiling():
        return torch.func.functionalize(take, remove="mutations")(p, gradient, *rates, *kept.values())


def _clipped(gradients: Sequence[Any], most: float) -> Any:
    """The factor of gradients whose norm is at most what is said, as `torch.nn.utils.clip_grad_norm_` has it."""
    import torch

    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(x) for x in gradients]))
    return torch.clamp(most / (norm + 1e-6), max=1.0)


# Tracing


def _traced(step: Callable[..., Any], examples: Sequence[Any], optimizer: Any) -> Any:
    """The graph of a step, in core ATen."""
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.traceback import preserve_node_meta

    with preserve_node_meta(), quiet(), _refusing(optimizer):
        graph: Any = make_fx(
            lambda *given: step(given),
            decomposition_table=decompositions(),
            tracing_mode="fake",
            _allow_non_fake_inputs=True,
        )(*(x.detach() for x in examples))
    graph.graph.eliminate_dead_code()
    return graph


@contextmanager
def _refusing(optimizer: Any) -> Generator[None]:
    """Refuse an optimizer whose step PyTorch cannot trace."""
    try:
        yield
    except CompileError:
        raise
    except Exception as error:
        raise CompileError(
            "not-exportable",
            f"the step of {type(optimizer).__name__} cannot be captured: {first_line(error)}",
            why="its arithmetic is part of the program, and it does what a graph cannot hold",
            fix="use Adam, AdamW or SGD, or take the step in PyTorch with torch.compile",
        ) from error


@contextmanager
def _compiling() -> Generator[None]:
    """Where optimizers take their counts of steps as tensors on every device."""
    import torch

    before = torch.compiler.is_compiling
    torch.compiler.is_compiling = lambda: True
    try:
        yield
    finally:
        torch.compiler.is_compiling = before


@contextmanager
def _at(path: str) -> Generator[None]:
    """Where the nodes lie that are traced meanwhile."""
    from torch.fx import traceback

    before = traceback.current_meta
    traceback.current_meta = {"nn_module_stack": {path: (path, "")}}
    try:
        yield
    finally:
        traceback.current_meta = before
