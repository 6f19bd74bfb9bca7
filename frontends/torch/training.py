"""A training step as one graph: forward, loss, backward and optimizer.

    found = capture(model, optimizer, loss, (x,), (y,))
    imported = import_graph(found.program)

Parameters, slots of the optimizer, and buffers that the step changes are states. The optimizer's own step is traced on
tensors that stand for them, so one whose step is arithmetic is taken as it is. Learning rates are inputs, and
momentum where a scheduler cycles it, as schedulers
change them from step to step.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

from headrace.dialects.support.diagnostics import Collector, CompileError
from headrace.frontends.torch.importer import GraphProgram, State
from headrace.frontends.torch.lines import calling_line, user_line
from headrace.frontends.torch.program import decompositions, export, first_line, plain_recurrence, quiet

MODEL = "model"
"""What the model is called in the module that joins it and its loss."""


@dataclass(frozen=True)
class Slot:
    """A tensor that an optimizer keeps: the state's name, the parameters that it belongs to, and its key there."""

    state: str
    parameters: tuple[str, ...]
    key: str
    first: Any
    """What it holds before the first step, where the optimizer had nothing at capture; otherwise what it had then."""
    fresh: bool
    """Whether the optimizer had nothing."""


@dataclass(frozen=True)
class Rate:
    """A number of a group of the optimizer that changes between steps: `lr`, `momentum`, or the first of `betas`."""

    group: int
    key: str

    def of(self, optimizer: Any) -> float:
        """What it is now."""
        value = optimizer.param_groups[self.group][self.key]
        return float(value[0] if self.key == "betas" else value)


@dataclass(frozen=True)
class Training:
    """A captured step, and what its states are in the model and in the optimizer."""

    program: GraphProgram
    tensors: Mapping[str, Any]
    """Parameters and buffers that the step changes, by state."""
    slots: tuple[Slot, ...]
    rates: Mapping[str, Rate]
    """The inputs that are read from the optimizer at each step."""
    optimizer: Any
    groups: tuple[Group, ...]

    def state(self) -> dict[str, Any]:
        """What model and optimizer hold now, by state. `CompileError` when it does not fit the program."""
        errors = Collector()
        found = dict(self.tensors)
        for slot in self.slots:
            now = [self._now(slot, name) for name in slot.parameters]
            if any(x.shape != slot.first.shape for x in now) or (len(now) > 1 and len({x.item() for x in now}) > 1):
                errors.add(
                    "bad-state",
                    f"the optimizer's '{slot.key}' of {', '.join(slot.parameters[:3])} is other than at capture",
                    why="parameters whose counts of steps were equal share one in the program"
                    if len(now) > 1
                    else f"it is {tuple(now[0].shape)}, and was {tuple(slot.first.shape)}",
                    fix="compile the step again",
                )
            found[slot.state] = now[0]
        errors.raise_if_any()
        return found

    def _now(self, slot: Slot, name: str) -> Any:
        torch = _torch()

        kept: dict[str, Any] = self.optimizer.state.get(self.tensors[name]) or {}
        now: Any = kept.get(slot.key)
        if isinstance(now, torch.Tensor):
            return now.reshape(()) if slot.key == "step" and now.numel() == 1 else now
        if slot.fresh:
            return slot.first
        parameter = self.tensors[name]
        index = next(i for i, group in enumerate(self.groups) if any(p is parameter for p in group.parameters))
        return _first(self.optimizer, index, parameter)[slot.key]

    def check(self) -> None:
        """Refuse an optimizer whose groups are not those that the program was made for."""
        groups = self.optimizer.param_groups
        errors = Collector()
        if len(groups) != len(self.groups):
            errors.add(
                "bad-state",
                f"the optimizer has {len(groups)} groups of parameters, and had {len(self.groups)} at capture",
                why="which parameters are trained is part of the program",
                fix="compile the step again",
            )
        for index, (group, was) in enumerate(zip(groups, self.groups, strict=False)):
            if len(group["params"]) != len(was.parameters) or any(
                x is not y for x, y in zip(group["params"], was.parameters, strict=False)
            ):
                what = f"group {index} of the optimizer has other parameters than at capture"
                errors.add("bad-state", what, fix="compile the step again")
            for key, value in was.options.items():
                if _option(group, key) != value:
                    errors.add(
                        "bad-state",
                        f"{key} of group {index} of the optimizer is {group.get(key)!r}, and was {value!r} at capture",
                        why="but for learning rates and cycled momentum, its options are part of the program",
                        fix="make a scheduler that cycles it before the step is compiled, or compile the step again"
                        if key in ("momentum", "betas")
                        else "compile the step again",
                    )
        errors.raise_if_any()


@dataclass(frozen=True)
class Group:
    """A group of parameters of the optimizer at capture."""

    parameters: tuple[Any, ...]
    options: Mapping[str, Any]
    """Those that are part of the program."""


def capture(
    model: Any,
    optimizer: Any,
    loss: Callable[..., Any] | None,
    inputs: Sequence[Any],
    targets: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    max_norm: float | None = None,
    bf16: bool = False,
) -> Training:
    """The graph of one training step on example inputs and targets.

    `loss(outputs, *targets)` gives the loss, or the loss and more tensors, which the step gives, too; without it the
    model gives its loss itself, alone, as `.loss` or as `["loss"]`. `max_norm` clips the norm of all gradients. With
    `bf16`, model and loss run as under `torch.autocast`. `CompileError` says what cannot be captured.
    """
    torch = _torch()

    groups = _groups(model, optimizer)
    _check_hooks(model, optimizer)
    with torch.inference_mode(False), torch.enable_grad():
        joint = _Joint(model, loss, inputs, targets, dict(kwargs or {}), bf16)
    trained = {name: joint.parameters[name] for name in groups if name in joint.gradients}
    if not trained:
        raise CompileError("bad-model", "no parameter of the optimizer has a gradient: there is nothing to train")
    slots = _slots(optimizer, {name: groups[name] for name in trained}, trained)
    changed = {name: joint.buffers[name] for name in joint.changed}
    rates = {
        _of("momentum" if key == "betas" else key, i): Rate(i, key)
        for i in sorted({groups[name] for name in trained})
        for key in _cycled(optimizer.param_groups[i])
    }
    tensors = {**trained, **changed}
    states = {**tensors, **{slot.state: slot.first for slot in slots}}
    fixed = {name: t for name, t in {**joint.parameters, **joint.buffers}.items() if name not in states}

    def step(given: Sequence[Any]) -> list[Any]:
        left = iter(given)
        data = [next(left) for _ in joint.examples]
        state: dict[str, Any] = {name: next(left) for name in states}
        rate: dict[int, dict[str, Any]] = defaultdict(dict)
        for one in rates.values():
            rate[one.group][one.key] = next(left)
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
                after[name], made = _stepped(optimizer, index, state[name], gradients[name], rate[index], kept)
            after.update({slot.state: made[slot.key] for slot in mine})
        return [*results, *(after[name] for name in states)]

    count, last = len(joint.examples), len(joint.examples) + len(states)
    first = [torch.tensor(one.of(optimizer)) for one in rates.values()]
    graph = _traced(step, [*joint.examples, *states.values(), *first, *fixed.values()], optimizer)
    program = GraphProgram(
        graph,
        weights=dict(enumerate(fixed.values(), last + len(rates))),
        names=dict(enumerate((*joint.names, *states, *rates, *fixed))),
        states={count + i: State(joint.results + i, tensor) for i, tensor in enumerate(states.values())},
        arguments=count,
        constants=joint.constants,
        spec=joint.spec,
    )
    kept = tuple(Group(tuple(group["params"]), _options(optimizer, group)) for group in optimizer.param_groups)
    return Training(program, tensors, slots, rates, optimizer, kept)


IMPLEMENTATION = frozenset(("lr", "foreach", "fused", "capturable", "differentiable"))
"""Options of a group that say how PyTorch computes a step, and the learning rate."""


def _options(optimizer: Any, group: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a group that are part of the program."""
    return {key: _option(group, key) for key in optimizer.defaults if key in group and key not in IMPLEMENTATION}


def _cycled(group: Mapping[str, Any]) -> list[str]:
    """The numbers of a group that schedulers change; those that cycle momentum note its bounds."""
    found = ["lr"] if "lr" in group else []
    if "max_momentum" in group and (group.get("momentum") or group.get("betas")):
        found.append("betas" if "betas" in group else "momentum")
    return found


def _option(group: Mapping[str, Any], key: str) -> Any:
    """What of an option is part of the program: of momentum that is an input, whether there is any."""
    value = _plain(group.get(key))
    if key in _cycled(group):
        return value[1:] if key == "betas" else (bool(value),)
    return value


def _plain(value: Any) -> Any:
    """An option as something that can be compared."""
    torch = _torch()

    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, tuple | list):
        return tuple(_plain(x) for x in cast("tuple[Any, ...]", value))
    return value


def _torch() -> Any:
    """PyTorch; its types leave too much open."""
    import torch

    return torch


def _of(name: str, group: int) -> str:
    """The name of something that each group of parameters has."""
    return f"{name}.{group}" if group else name


def _groups(model: Any, optimizer: Any) -> dict[str, int]:
    """The optimizer's group of each of the model's parameters that it has."""
    torch = _torch()

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
            fix="make it of model.parameters(); where the loss has parameters, make one module of model and loss",
        )
    return found


def _check_hooks(model: Any, optimizer: Any) -> None:
    """Refuse what PyTorch would call in a backward pass or a step, and a graph does not hold."""
    errors = Collector()
    fix = "remove it, and do what it does in forward, in the loss, or between steps"
    for name, p in model.named_parameters():
        if getattr(p, "_backward_hooks", None) or getattr(p, "_post_accumulate_grad_hooks", None):
            errors.add("not-supported", f"parameter '{name}' has a hook on its gradient", fix=fix)
    for name, module in model.named_modules():
        if module._backward_hooks or module._backward_pre_hooks:
            what = f"module '{name}'" if name else type(module).__name__
            errors.add("not-supported", f"{what} has a backward hook", fix=fix)
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        errors.add("not-supported", f"{type(optimizer).__name__} has a hook on its step", fix=fix)
    errors.raise_if_any()


REGISTERED = "torch._library.autograd"
"""Where the functions of ops come from whose backward is registered: those stay calls of the op in an export."""


@contextmanager
def _no_own_gradients() -> Generator[None]:
    """Refuse functions and hooks that say gradients themselves: an export keeps their forward only."""
    torch = _torch()

    def refuse(what: str) -> Any:
        raise CompileError(
            "not-supported",
            what,
            why="the program's gradients are those of the ops that forward consists of",
            fix="compute it with ops of PyTorch, or use torch.compile(model, backend='headrace')",
            location=calling_line(),
        )

    function: Any = torch.autograd.Function
    applied, hooked, taken = function.__dict__["apply"], torch.Tensor.register_hook, torch.autograd.grad

    def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        if cls.__module__ == REGISTERED:
            return applied.__get__(None, cls)(*args, **kwargs)
        refuse(f"{cls.__name__} is a function with its own backward")

    def register_hook(*_: Any, **__: Any) -> Any:
        refuse("forward registers a hook on a gradient")

    def grad(*_: Any, **__: Any) -> Any:
        refuse("forward takes gradients itself")

    function.apply, torch.Tensor.register_hook, torch.autograd.grad = classmethod(apply), register_hook, grad
    try:
        yield
    finally:
        function.apply, torch.Tensor.register_hook, torch.autograd.grad = applied, hooked, taken


class _Joint:
    """Forward, loss and backward as a graph of flat tensors."""

    def __init__(
        self,
        model: Any,
        loss: Callable[..., Any] | None,
        inputs: Sequence[Any],
        targets: Sequence[Any],
        kwargs: Mapping[str, Any],
        bf16: bool,
    ) -> None:
        torch = _torch()
        from torch.utils._pytree import tree_flatten

        if not inputs and not kwargs:
            export(model, ())  # which says what examples are missing
        flat, self.spec = tree_flatten(((*inputs, *targets), dict(kwargs)))
        whole = _with_loss(model, loss, len(inputs), self.spec, flat, bf16)
        self.examples = [x for x in flat if isinstance(x, torch.Tensor)]
        self.constants = tuple((i, x) for i, x in enumerate(flat) if not isinstance(x, torch.Tensor))
        names = _names(model, len(inputs), (*inputs, *targets), kwargs)
        self.names = [name for name, x in zip(names, flat, strict=True) if isinstance(x, torch.Tensor)]
        with _no_own_gradients():
            program = export(whole, self.examples, grad=True)
        _check_dense(program)
        module = program.module()
        _keep_constants(module)
        with ExitStack() as stack, quiet(), plain_recurrence():
            try:
                from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

                found = aot_export_joint_with_descriptors(
                    stack,
                    module,
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
            elif isinstance(desc, kinds.InputMutationAOTOutput) and isinstance(desc.mutated_input, kinds.ParamAOTInput):
                raise CompileError(
                    "not-supported",
                    f"forward changes the parameter '{self._name(desc.mutated_input.target)}' in place",
                    why="it is the optimizer that changes parameters in a step",
                    fix="make it a buffer; of an embedding, leave max_norm out",
                )
            elif isinstance(desc, kinds.InputMutationAOTOutput):
                raise CompileError(
                    "not-supported",
                    f"the step changes one of its inputs in place ({desc.mutated_input.expr()})",
                    why="what a step changes are parameters, buffers and what the optimizer keeps",
                    fix="change a copy: x = x.clone()",
                )
            else:
                raise CompileError("not-exportable", f"the backward graph has an output that is {desc}")
        values = self.graph.graph.output_node().args[0]
        self.results = sum(kind == "result" for kind, _ in self._outputs)
        self.changed = [name for kind, name in self._outputs if kind == "changed"]
        self.gradients = {
            name for (kind, name), x in zip(self._outputs, values, strict=True) if kind == "gradient" and x is not None
        }
        for node in self.graph.graph.nodes:
            stack: dict[str, Any] = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
            node.meta["nn_module_stack"] = {
                key: (str(path).removeprefix(MODEL).removeprefix("."), kind) for key, (path, kind) in stack.items()
            }

    def _name(self, target: str) -> str:
        """The model's name of a parameter or buffer."""
        return self._known.get(target, target)

    def run(self, data: Sequence[Any], tensors: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
        """Results, gradients by parameter, and changed buffers; nodes that are traced meanwhile lie where those of the
        graph do."""
        torch = _torch()

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


def _check_dense(program: Any) -> None:
    """Refuse gradients that are sparse."""
    from headrace.frontends.torch.importer import named_text, node_location

    errors = Collector()
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        names = [argument.name for argument in schema.arguments] if schema is not None else []
        at = names.index("sparse") if "sparse" in names else len(node.args)
        if node.kwargs.get("sparse") or (at < len(node.args) and node.args[at]):
            errors.add(
                "not-supported",
                "the gradient of an embedding is sparse",
                why="which rows it has depends on the elements of its indices",
                fix="sparse=False: the gradient is then dense, and so is the optimizer's step",
                location=named_text(node_location(node)),
            )
    errors.raise_if_any()


def _keep_constants(module: Any) -> None:
    """Make buffers of tensors that the graph holds and the model does not know as such."""
    torch = _torch()

    for node in module.graph.find_nodes(op="get_attr"):
        path, _, name = str(node.target).rpartition(".")
        try:
            owner = module.get_submodule(path)
        except AttributeError:
            continue
        tensor = getattr(owner, name, None)
        if isinstance(tensor, torch.Tensor) and name not in owner._parameters and name not in owner._buffers:
            delattr(owner, name)
            owner.register_buffer(name, tensor, persistent=False)


def _with_loss(
    model: Any, loss: Callable[..., Any] | None, count: int, spec: Any, flat: Sequence[Any], bf16: bool
) -> Any:
    """A module of flat tensors that gives the loss, and whatever else the loss function gives; what is no tensor is
    that of `flat`."""
    torch = _torch()
    from torch.utils._pytree import tree_unflatten

    class WithLoss(torch.nn.Module):
        """A model and its loss."""

        def __init__(self) -> None:
            torch.nn.Module.__init__(self)
            self.model = model
            self.train(model.training)
            if isinstance(loss, torch.nn.Module):
                self.loss = loss

        def forward(self, *tensors: Any) -> Any:
            left = iter(tensors)
            args, kwargs = tree_unflatten([next(left) if isinstance(x, torch.Tensor) else x for x in flat], spec)
            with torch.autocast("cpu", dtype=torch.bfloat16) if bf16 else nullcontext():
                made: Any = self.model(*args[:count], **kwargs)
                made = _loss_of(made) if loss is None else loss(made, *args[count:])
            found = tuple(cast("tuple[Any, ...]", made)) if isinstance(made, tuple | list) else (made,)
            if not isinstance(found[0], torch.Tensor) or found[0].numel() != 1:
                given = f"{tuple(found[0].shape)}" if isinstance(found[0], torch.Tensor) else type(found[0]).__name__
                raise CompileError(
                    "bad-model",
                    f"the loss is no single number but {given}",
                    fix="give loss=..., a function of the model's outputs and the targets that returns a scalar",
                )
            wrong = next((type(x).__name__ for x in found[1:] if not isinstance(x, torch.Tensor)), "")
            if wrong:
                raise CompileError(
                    "bad-model",
                    f"behind the loss stands a {wrong}",
                    why="a step gives tensors, the loss first",
                    fix="return the loss, or a tuple of the loss and more tensors",
                )
            return found[0], *(x.detach() for x in found[1:])

    WithLoss.__name__ = type(model).__name__  # what errors call it
    return WithLoss()


def _loss_of(made: Any) -> Any:
    """The loss among what a model gives."""
    if isinstance(made, Mapping):
        given = cast("Mapping[str, Any]", made)
        return given.get("loss", given)
    return getattr(made, "loss", made)


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
    torch = _torch()

    errors = Collector()
    found: list[Slot] = []
    counts: dict[tuple[int, float], list[str]] = defaultdict(list)
    steps: dict[tuple[int, float], Any] = {}
    for name, p in trained.items():
        fresh = not optimizer.state.get(p)
        kept: Mapping[str, Any] = optimizer.state.get(p) or _first(optimizer, groups[name], p)
        for key, tensor in kept.items():
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
                steps[count] = tensor.reshape(()).to(torch.float32, copy=True), fresh
            else:
                found.append(Slot(f"{name}.{key}", (name,), key, tensor, fresh))
    errors.raise_if_any()
    shared = [Slot(_of("step", i), tuple(names), "step", *steps[c]) for i, (c, names) in enumerate(counts.items())]
    return (*found, *shared)


def _first(optimizer: Any, group: int, p: Any) -> dict[str, Any]:
    """What an optimizer keeps for a parameter before its first step."""
    torch = _torch()
    from torch._subclasses.fake_tensor import FakeTensorMode

    if not hasattr(optimizer, "_init_group"):
        raise CompileError(
            "not-supported",
            f"what {type(optimizer).__name__} keeps before its first step is not known",
            fix="take one step in PyTorch before, or use Adam, AdamW or SGD",
        )
    like = torch.nn.Parameter(torch.zeros_like(p, memory_format=torch.contiguous_format))
    like.grad = torch.zeros_like(like)
    made = _standing(optimizer, group, like, {}, {})
    lists = list(inspect.signature(made._init_group).parameters)[1:]
    made._init_group(made.param_groups[0], *([] for _ in lists))
    kept = dict(made.state[like])
    with _refusing(optimizer), FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = {key: mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for key, x in kept.items()}
        fake = mode.from_tensor(like.detach())
        _, after = _stepped(optimizer, group, fake, fake.clone(), {}, fakes)
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
    return inspect.unwrap(optimizer.__class__.step)


def _standing(optimizer: Any, group: int, p: Any, rates: Mapping[str, Any], kept: Mapping[str, Any]) -> Any:
    """An optimizer of the same kind that has one parameter, and takes its step in plain tensor arithmetic."""
    made: Any = object.__new__(optimizer.__class__)
    made.__dict__.update(optimizer.__dict__)
    options: dict[str, Any] = {**optimizer.param_groups[group], "params": [p]}
    options.update({key: value for key, value in (("foreach", False), ("fused", None)) if key in options})
    if "capturable" in options:
        options["capturable"] = True  # the count of steps is a tensor
    for key, rate in rates.items():
        options[key] = (rate, *options[key][1:]) if key == "betas" else rate
    made.param_groups = [options]
    made.state = defaultdict[Any, dict[str, Any]](dict[str, Any], {p: dict(kept)})
    return made


def _stepped(
    optimizer: Any, group: int, p: Any, gradient: Any, rates: Mapping[str, Any], kept: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """A parameter and what the optimizer keeps for it, after its step."""
    torch = _torch()

    keys = list(kept)

    def take(p: Any, gradient: Any, *given: Any) -> Any:
        p, *slots = (x.clone() for x in (p, *given[len(rates) :]))
        p.grad = gradient
        named = dict(zip(rates, given, strict=False))
        made = _standing(optimizer, group, p, named, dict(zip(keys, slots, strict=True)))
        with _some(named.get("momentum")):
            _step(optimizer)(made)
        return p, dict(made.state[p])

    with torch.no_grad(), _compiling():
        return torch.func.functionalize(take, remove="mutations")(p, gradient, *rates.values(), *kept.values())


@contextmanager
def _some(number: Any) -> Generator[None]:
    """Where a tensor is other than zero, whatever it holds: optimizers ask whether there is any momentum."""
    from torch.overrides import TorchFunctionMode

    class Asked(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if getattr(func, "__name__", "") in ("ne", "__ne__") and args[0] is number:
                return True
            return func(*args, **(kwargs or {}))

    if number is None:
        yield
    else:
        with Asked():
            yield


def _clipped(gradients: Sequence[Any], most: float) -> Any:
    """The factor of gradients whose norm is at most what is said, as `torch.nn.utils.clip_grad_norm_` has it."""
    torch = _torch()

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
    torch = _torch()

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
