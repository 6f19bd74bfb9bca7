"""Running programs: the `Executable` that a user calls, loading it from an artifact, and the `Runtime` of a
device."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from headrace.dialects.support import dtypes
from headrace.dialects.support.diagnostics import Collector, CompileError, nearest
from headrace.dialects.support.files import replacing
from headrace.dialects.tensor.meaning.special import rounds_to
from headrace.runtime.artifact import Artifact, open_artifact
from headrace.runtime.check import check_program
from headrace.runtime.literal import stream_config
from headrace.runtime.plan import Part, Plan, Step, bind_program, plan_configs, run_steps
from headrace.runtime.program import Launch, Port, Program
from headrace.runtime.schedule import ConfigPlan

if TYPE_CHECKING:
    from headrace.runtime.timing import Timing

Array = np.ndarray[Any, np.dtype[Any]]


LARGE = 1 << 20
"""Bytes from which an input is worth reading where it is."""


class Weights(Protocol):
    """Where weights come from: a weight store or an open artifact."""

    def array(self, key: str) -> Array:
        """The weight of that key; `CompileError` when there are no bytes for it."""
        ...


@dataclass(frozen=True)
class Bound:
    """Views of an executable's own memory: write `inputs`, call `run()`, read `outputs` before the next run."""

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    run: Callable[[], None]


class Executable:
    """A program bound to memory, ready to run; not re-entrant (`clone` for another thread).

    >>> out = exe({"x": x})

    Inputs and outputs are dictionaries of arrays by name. State (a KV cache, variables) lives in the executable: it
    is neither an input that must be given nor an output that is returned, but `state()` and `reset()`.
    """

    def __init__(
        self,
        program: Program,
        weights: Weights,
        *,
        literal: bool = False,
        check: bool = True,
        manifest: Mapping[str, Any] | None = None,
        initial: Mapping[str, Array] | None = None,
        save: Callable[[Executable, str | os.PathLike[str]], None] | None = None,
        plans: Sequence[tuple[Launch, ConfigPlan | str]] | None = None,
        _like: Executable | None = None,
    ) -> None:
        """`literal` executes tile by tile through the flows. `check` false skips `check_program` (for programs just
        compiled and checked). `initial` is what states hold at first, where that is not zero; an artifact says so
        itself. `save` writes an artifact (the compiler gives it; the runtime writes none). `plans` are those of
        `plan_configs` if at hand."""
        if check:
            check_program(program)
        self.program = program
        self.weights = weights
        self.literal = literal
        self.manifest: Mapping[str, Any] = manifest or {}
        self._save = save
        self._configs = _like._configs if _like else plans or (None if literal else plan_configs(program))
        shared = _like._plan if _like else None
        self._plan: Plan = bind_program(
            program, weights.array, literal_only=literal, plans=self._configs, shared=shared
        )
        self._state_inputs = dict(program.states)
        self._inputs = {p.name: self._view(p) for p in program.inputs if p.name not in self._state_inputs}
        hidden = set(self._state_inputs.values())
        self._outputs = {p.name: self._view(p) for p in program.outputs if p.name not in hidden}
        outputs = {p.name: p for p in program.outputs}
        self._states: dict[str, Array] = {}
        for port in program.inputs:
            if port.name in self._state_inputs:
                self._states[port.name] = past = self._view(port)
                other = outputs[self._state_inputs[port.name]]
                if (other.region, other.offset) != (port.region, port.offset):
                    self._plan.steps.append((np.copyto, (past, self._view(other))))

        if initial is None and isinstance(weights, Artifact):
            initial = weights.states
        self._initial = dict(initial or {})
        for name, array in self._initial.items():
            np.copyto(self._states[name], array, "unsafe")
        self._large = self._readable_in_place()
        self._last_large: list[int] | None = None
        self._adopted: tuple[list[int], list[Step]] | None = None

    def _readable_in_place(self) -> dict[str, int]:
        """Large inputs that fill a region of their own, which nothing else names: name to region."""
        named = [p.region for p in (*self.program.inputs, *self.program.outputs)]
        return {
            p.name: p.region
            for p in self.program.inputs
            if p.name in self._inputs
            and self._inputs[p.name].nbytes >= LARGE
            and named.count(p.region) == 1
            and self.program.regions[p.region].kind == "input"
            and self.program.regions[p.region].type.elements == p.type.elements
        }

    def _view(self, port: Port) -> Array:
        flat = self._plan.regions[port.region]
        return flat[port.offset : port.offset + port.type.elements].reshape(port.type.shape)

    # What it takes and gives

    @property
    def inputs(self) -> tuple[Port, ...]:
        """Inputs that a call must give."""
        return tuple(p for p in self.program.inputs if p.name in self._inputs)

    @property
    def outputs(self) -> tuple[Port, ...]:
        """Outputs that a call returns."""
        return tuple(p for p in self.program.outputs if p.name in self._outputs)

    def __repr__(self) -> str:
        past, present = ({pair[k] for pair in self.program.states} for k in (0, 1))
        takes = ", ".join(f"{p.name} {p.type}" for p in self.program.inputs if p.name not in past)
        gives = ", ".join(f"{p.name} {p.type}" for p in self.program.outputs if p.name not in present)
        name = self.manifest.get("model", "")
        return f"<Executable{' ' * bool(name)}{name} for {self.program.device.get('name', '')}: {takes} -> {gives}>"

    @property
    def report(self) -> list[str]:
        """Which configs run tile by tile because they could not be merged, and why; empty when none does."""
        return list(self._plan.report)

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena that inputs, outputs and intermediate arrays share."""
        return self._plan.arena_bytes

    # Running

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run once; the arrays returned are fresh. Inputs are copied, except that those of at least `LARGE` bytes are
        read where they are if the same arrays are given again and again (and are kept alive for that).

        `CompileError` lists every input that is missing, unknown, or of another shape or type, and runs nothing.
        """
        arrays = self._checked(inputs)
        steps = self._adopt(arrays) if self._large else None
        for name, array in arrays.items():
            if steps is None or name not in self._large:
                np.copyto(self._inputs[name], array)
        run_steps(self._plan.steps if steps is None else steps)
        return {name: view.copy() for name, view in self._outputs.items()}

    def stream(self, inputs: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Array]]:
        """The outputs for inputs that come one after the other, in their order. A program compiled for throughput takes
        `program.runs` of them at a time. With states they are runs that follow each other, as calls are."""
        if not self.literal or self.program.runs == 1:
            for one in inputs:
                yield self(one)
            return
        waiting = iter(inputs)
        while batch := [self._checked(one) for one in islice(waiting, self.program.runs)]:
            yield from self._together(batch)

    def _together(self, batch: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        """Run tile by tile for several inputs at a time: each launch for all of them, in regions of a tensor each."""
        regions: list[list[Array]] = []
        for region, alone in zip(self.program.regions, self._plan.regions, strict=True):
            count = region.type.elements
            memory = np.zeros(len(batch) * count, alone.dtype) if region.runs > 1 else alone
            step = count if region.runs > 1 else 0
            regions.append([memory[i * step : i * step + count] for i in range(len(batch))])

        def at(port: Port, run: int) -> Array:
            flat = regions[port.region][run]
            return flat[port.offset : port.offset + port.type.elements].reshape(port.type.shape)

        for run, arrays in enumerate(batch):
            for port in self.inputs:
                np.copyto(at(port, run), arrays[port.name])
        for launch in self.program.launches:
            config = self.program.configs[launch.config]
            places = list(zip(config.params, launch.args, strict=True))
            params = [
                [regions[r][run][offset : offset + p.type.elements] for p, (r, offset) in places]
                for run in range(len(batch))
            ]
            stream_config(config, params)
        return [{port.name: at(port, run).copy() for port in self.outputs} for run in range(len(batch))]

    def _adopt(self, arrays: Mapping[str, Array]) -> list[Step] | None:
        """Steps that read large inputs where the caller has them; None when they are to be copied.

        Binding to other memory takes longer than a copy, so it is done for the first arrays that are given and for
        arrays that are given twice in a row."""
        key: list[int] = []
        for name in self._large:
            array = arrays[name]
            if not (array.flags.c_contiguous and array.flags.aligned):
                return None
            key.append(array.__array_interface__["data"][0])
        if self._adopted is not None and self._adopted[0] == key:
            return self._adopted[1]
        first_or_again = self._last_large in (None, key)
        self._last_large = key
        if not first_or_again:
            return None
        flat = {region: arrays[name].reshape(-1) for name, region in self._large.items()}
        steps = self._plan.steps_on(flat)
        self._adopted = (key, steps)  # the steps keep the arrays alive, so no others can come to lie there
        return steps

    def _checked(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """The array of every input."""
        if not isinstance(inputs, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise CompileError(
                "bad-input",
                f"inputs are given as {type(inputs).__name__}",
                why="they are arrays by name",
                fix=f"give a dictionary with {', '.join(self._inputs) or 'nothing in it'}",
            )
        found = Collector()
        arrays: dict[str, Array] = {}
        for name, view in self._inputs.items():
            if name not in inputs:
                found.add("bad-input", f"input '{name}' of {_type(view)} is missing")
                continue
            given = inputs[name]
            try:
                array = cast("Array", np.asarray(given))
            except ValueError:  # rows of different lengths, say
                why = f"NumPy makes none of this {type(given).__name__}"
                found.add("bad-input", f"input '{name}' is no array", why=why, fix=f"give {_type(view)}")
                continue
            plain = not isinstance(given, np.ndarray | np.generic)  # a list, say: it has no type of its own
            if plain and np.can_cast(array.dtype, view.dtype, "same_kind"):
                array = array.astype(view.dtype)
            if array.shape != view.shape or array.dtype != view.dtype:
                found.add("bad-input", f"input '{name}' is {_type(array)}, expected {_type(view)}",
                          fix=_fix(name, array, view))  # fmt: skip
                continue
            arrays[name] = array
        for name in inputs:
            if name in self._states:
                found.add("bad-input", f"'{name}' is state that lives in the executable", fix="set it with reset()")
            elif name not in self._inputs:
                found.add("bad-input", f"no input '{name}'", fix=nearest(str(name), self._inputs))
        found.raise_if_any()
        return arrays

    def bind(self) -> Bound:
        """Views of the memory that runs use: no copies in or out."""
        return Bound(dict(self._inputs), dict(self._outputs), self.run)

    def run(self) -> None:
        """Run once on what the views of `bind` hold. Allocates nothing of note."""
        self._plan.run()

    def parts(self) -> Iterator[Part]:
        """What `run` does, part by part: for tools that look at the values in memory. The steps of a part are to be run
        (`run_steps`) before the next part is asked for."""
        return self._plan.parts()

    def clone(self) -> Executable:
        """Another executable of the same program with its own memory and state; weights are shared."""
        return Executable(
            self.program, self.weights, literal=self.literal, check=False, manifest=self.manifest,
            initial=self._initial, save=self._save, _like=self,
        )  # fmt: skip

    # State

    def state(self) -> dict[str, Array]:
        """A copy of the state, by the name of the input that it stands for."""
        return {name: view.copy() for name, view in self._states.items()}

    def reset(self, state: Mapping[str, Any] | None = None) -> None:
        """Set the state: arrays by input name; what is not given becomes what it was at first (zero, but for what an
        artifact has). Floats are rounded to a narrower type that the state has. `CompileError` on a wrong name, shape
        or type."""
        given = dict(state or {})
        self._check_state(given)
        for name, view in self._states.items():
            if name in given:
                np.copyto(view, given[name], "unsafe")
            else:
                view[...] = self._initial.get(name, 0)

    def _check_state(self, given: Mapping[str, Any]) -> None:
        """Refuse what is no state, or of another type."""
        found = Collector()
        for name, array in given.items():
            view = self._states.get(name)
            if view is None:
                found.add("bad-input", f"no state '{name}'", fix=nearest(name, self._states))
            elif np.shape(array) != view.shape or not rounds_to(np.asarray(array).dtype, view.dtype):
                found.add("bad-input", f"state '{name}' is {_type(np.asarray(array))}, expected {_type(view)}")
        found.raise_if_any()

    # Time

    def profile(self, inputs: Mapping[str, Any] | None = None, *, model: str = "event") -> Timing:
        """The time of one run on the device, or of all that the program takes at a time, by section, unit and op of the
        model. Nothing is run: the time does not depend on `inputs`. `model`: 'event' follows every tile, 'analytic' is
        its steady state."""
        from headrace.runtime.timing import time_program

        del inputs
        return time_program(self.program, model)

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact. One that was loaded is copied byte by byte."""
        if self._save is not None:
            self._save(self, path)
        elif isinstance(self.weights, Artifact):
            _copy(self.weights, Path(path))
        else:
            raise CompileError("cannot-write", "this executable has no writer", fix="make it with headrace.compile")


def _copy(artifact: Artifact, path: Path) -> None:
    import shutil

    if path.exists() and path.samefile(artifact.path):
        return
    with replacing(path) as file, open(artifact.path, "rb") as source:
        shutil.copyfileobj(source, file)


def _type(array: Array) -> str:
    try:
        name = dtypes.from_numpy(array.dtype)
    except KeyError:
        name = str(array.dtype)
    return f"{name}{list(array.shape)}"


def _fix(name: str, array: Array, view: Array) -> str:
    if array.dtype != view.dtype and array.shape == view.shape:
        return f"{name}.astype('{view.dtype}')"
    if array.shape != view.shape and array.size == view.size:
        return f"{name}.reshape({list(view.shape)}), or compile for this shape"
    return "compile for this shape" if array.shape != view.shape else ""


def load(
    path: str | os.PathLike[str], *, verify: bool | None = None, literal: bool = False, ranks: str = ""
) -> Executable:
    """The executable of a saved artifact. `verify` is that of `open_artifact`; `literal` runs tile by tile. A program
    of several sockets runs all of them in this process; with `ranks` "gloo" one of them, as this process's rank in
    torch.distributed says."""
    return executable_of(open_artifact(path, verify), literal=literal, ranks=ranks)


def executable_of(artifact: Artifact, *, literal: bool = False, ranks: str = "") -> Executable:
    """The executable of an open artifact; see `load`."""
    if ranks not in ("", "gloo"):
        raise CompileError("bad-option", f"there are no ranks '{ranks}'", fix=nearest(ranks, ("gloo",)))
    if artifact.program.sockets > 1:
        from headrace.runtime.cluster.mesh import MeshExecutable

        socket = None
        if ranks:
            from headrace.runtime.cluster.gloo import this_socket

            check_program(artifact.program)
            socket = this_socket(artifact.program)
        return MeshExecutable(artifact.program, artifact, literal=literal, manifest=artifact.manifest, socket=socket)
    return Executable(artifact.program, artifact, literal=literal, manifest=artifact.manifest)


class Runtime:
    """Loads and runs artifacts for one device.

    >>> rt = Runtime(device_type="sn50"); m = rt.load_model("m.sn"); out = rt.run(m, {"x": x})
    """

    def __init__(self, device_type: str = "") -> None:
        """`device_type` empty accepts artifacts of any device; a name that no device has is refused."""
        from headrace.dialects.machine.device import device_names

        if device_type and device_type not in device_names():
            raise CompileError("unknown-device", f"no device '{device_type}'", fix=nearest(device_type, device_names()))
        self.device_type = device_type

    def load_model(self, path: str | os.PathLike[str], *, verify: bool | None = None) -> Executable:
        """The executable of an artifact; `CompileError` when it was compiled for another device."""
        exe = load(path, verify=verify)
        device = str(exe.program.device.get("name", ""))
        if self.device_type and device != self.device_type:
            raise CompileError(
                "wrong-device",
                f"{path} was compiled for '{device}', this runtime is '{self.device_type}'",
                fix=f"compile the model with --device {self.device_type}",
            )
        return exe

    def run(self, model: Executable, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run a loaded model once."""
        return model(inputs)
