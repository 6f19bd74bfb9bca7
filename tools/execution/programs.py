"""Programs of any level as something to run: weights and inputs from files or seeds, and the results by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp

from headrace.dialects.support.diagnostics import CompileError
from headrace.tools.cli.common import load_arrays, random_array

if TYPE_CHECKING:
    import numpy as np
    from xdsl.dialects.func import FuncOp

    from headrace.dialects.rdu.program import ProgramOp
    from headrace.dialects.support.weights import WeightStore
    from headrace.dialects.tensor.shapes import TT
    from headrace.runtime.program import Config, Program
    from headrace.runtime.session import Executable

    Array = np.ndarray[Any, np.dtype[Any]]


def weights_of(module: ModuleOp, given: str) -> WeightStore:
    """The weights of a program: of a weight file, an artifact or an .onnx model, or made from `random:SEED`."""
    seed = _seed(given, "--weights")
    if seed is None:
        from headrace.compiler import import_model, weight_store

        return import_model(given).store if Path(given).suffix == ".onnx" else weight_store(given)
    from headrace.dialects.support import weights
    from headrace.dialects.tensor.base import tt
    from headrace.dialects.tensor.storage import RecipeOp, WeightOp

    derived = {op.key for op in module.walk() if isinstance(op, RecipeOp)}
    used = {op.key.data: tt(op.results[0]) for op in module.walk() if isinstance(op, WeightOp)}
    program = units_of(module)
    if program is not None:
        used |= {op.key.data: tt(op.type) for op in program.regions_ if op.kind.data == "weight"}
    return weights.random({key: (of.shape, of.dtype) for key, of in used.items() if key not in derived}, seed)


def inputs_of(module: ModuleOp, given: str) -> dict[str, Array]:
    """The inputs of a program: of an .npz file, or made from `random:SEED`."""
    seed = _seed(given, "--check-execution")
    if seed is None:
        return load_arrays(given, "--check-execution")
    return {name: random_array(name, *of, seed) for name, of in input_types(module).items()}


def input_types(module: ModuleOp) -> dict[str, TT]:
    """The types of a program's inputs by name."""
    from headrace.dialects.tensor.base import tt
    from headrace.dialects.tensor.program import signature

    program = units_of(module)
    if program is not None:
        return {op.title.data: tt(op.type) for op in program.ports if op.kind.data == "input"}
    func = entry_of(module)
    return dict(zip(signature(func).inputs, map(tt, func.body.block.args), strict=True))


def in_types(arrays: Mapping[str, Array], module: ModuleOp) -> dict[str, Array]:
    """Inputs in the types that a program takes."""
    from headrace.dialects.support.dtypes import to_numpy

    types = input_types(module)
    return {
        name: array.astype(to_numpy(types[name].dtype), copy=False) if name in types else array
        for name, array in arrays.items()
    }


def run(module: ModuleOp, store: WeightStore, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The results of a program at whatever level it is, by name; states go by the names of their results."""
    from headrace.dialects.dataflow.interpreter import DataflowInterpreter  # runs tensor programs as well

    if units_of(module) is None:
        return DataflowInterpreter(module, store).run(entry_of(module).sym_name.data, inputs)
    exe = executable(module, store)
    states = dict(exe.program.states)
    exe.reset({name: array for name, array in inputs.items() if name in states})
    results = exe({name: array for name, array in inputs.items() if name not in states})
    return results | {states[past]: array for past, array in exe.state().items()}


def executable(module: ModuleOp, store: WeightStore) -> Executable:
    """A program of units bound to memory. Units that are not placed or routed yet run as well: where they stand and
    how their words travel decides when a result comes, not what it is."""
    from headrace.backend.encode import encode
    from headrace.compiler import ModelWeights
    from headrace.runtime.session import Executable

    program, weights = encode(module, routed=False), ModelWeights(module, store)
    exe = Executable(program, weights, check=False)
    if not exe.report:
        return exe
    return Executable(_joined(module, program), weights, check=False)  # a config that runs literally needs its pairs


PLACED = ("sites", "routes", "credits", "link_load", "memory", "address", "phase")
"""Properties of units, flows, configs and regions that say where and when, not what."""


def unplaced(module: ModuleOp) -> ModuleOp:
    """A copy of a program that says what is computed and not where: it has the same results."""
    copy = module.clone()
    if units_of(copy) is not None:
        for op in copy.walk():
            if op.name.startswith("rdu."):
                for name in PLACED:
                    op.properties.pop(name, None)
    return copy


def check_routes(module: ModuleOp) -> None:
    """Hold a program whose units are routed to the runtime's rules: every word arrives where it is read. `CompileError`
    lists what is wrong; nothing is asked of other programs."""
    from headrace.backend.encode import encode
    from headrace.dialects.rdu.config import ConfigOp
    from headrace.runtime.check import check_program

    configs = [op for op in module.body.block.ops if isinstance(op, ConfigOp)]
    if configs and all(op.phase.data == "routed" for op in configs):
        check_program(encode(module))


def _joined(module: ModuleOp, program: Program) -> Program:
    """The program with pairs of sites on flows that have no routes yet."""
    from headrace.dialects.rdu.config import ConfigOp
    from headrace.passes.analysis.pairs import flow_pairs

    configs: list[Config] = []
    for config, op in zip(program.configs, (x for x in module.body.block.ops if isinstance(x, ConfigOp)), strict=True):
        units = {unit.title: unit for unit in op.units}
        flows = [
            flow if of.routes is not None else replace(flow, pairs=flow_pairs(of, units))
            for flow, of in zip(config.flows, op.flows, strict=True)
        ]
        configs.append(replace(config, flows=tuple(flows)))
    return replace(program, configs=tuple(configs))


def units_of(module: ModuleOp) -> ProgramOp | None:
    """The program of a module at the rdu level."""
    from headrace.dialects.rdu.program import ProgramOp

    return next((op for op in module.body.block.ops if isinstance(op, ProgramOp)), None)


def entry_of(module: ModuleOp) -> FuncOp:
    """The function to run; `CompileError` when there is none."""
    from headrace.dialects.tensor.program import entry

    try:
        return entry(module)
    except KeyError:
        raise CompileError(
            "no-entry", "there is nothing to run", why="the module has no function @main", fix="name the function @main"
        ) from None


def _seed(text: str, flag: str) -> int | None:
    """The seed of `random:SEED`, None for anything else."""
    if not text.startswith("random:"):
        return None
    number = text.removeprefix("random:")
    if not number.isdecimal():
        raise CompileError("bad-option", f"{flag} {text}: the seed is not a number", fix=f"{flag} random:0")
    return int(number)
