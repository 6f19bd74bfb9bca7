"""Failures as files: the program of a seed, reduced while it fails in the same way, with a RUN line where one shows it.

What no pass shows (the runtime computes something else, a second run does) is a program with its numbers beside it.
"""

from __future__ import annotations

import re
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from headrace.dialects.machine.attributes import set_device
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.files import write_text
from headrace.dialects.tensor.storage import weight_types
from headrace.passes.infra.manager import PassBug
from headrace.passes.infra.registry import build
from headrace.tools.cli.common import save_arrays
from headrace.tools.debug import Failure, Numbers, Predicate, Source, Trial, reduce, reduce_failure, write
from headrace.tools.debug.failures import print_module
from headrace.tools.fuzz.campaign import Case, Endless, limit
from headrace.tools.fuzz.check import Disagreement, Unsound
from headrace.tools.fuzz.maker import Program

LONGEST = 20
"""Seconds of the processor after which a program counts as endless here: one that is reduced takes less."""
MOST = 200
"""Programs tried to make one smaller."""


def cause(error: Exception | Endless) -> str:
    """What failures of one cause have in common: the level that disagrees, or pass and kind of failure."""
    if isinstance(error, Disagreement):
        return f"disagreement: {re.sub(r'{.*?}', '', str(error)).partition(':')[0]}"
    if isinstance(error, Unsound):
        return f"unsound: {', '.join(error.codes)}"
    if isinstance(error, Endless):
        return "endless"
    failure = Failure.of(error, 0, error.pass_name if isinstance(error, PassBug) else "")
    return " ".join(filter(None, (failure.kind, failure.pass_name, failure.what)))


def keep(case: Case, folder: Path, most: int = MOST) -> Path:
    """Reduce the program of a case that fails and write it into a folder; the file."""
    numbers = Numbers(case.program.store, case.program.inputs).recording(case.program.module)

    def failing(module: ModuleOp) -> Exception | Endless | None:
        try:
            with limit(LONGEST):
                case.check(Program(module, numbers.arrays(module), numbers.store(module)))
        except (Exception, Endless) as error:
            return error
        return None

    def same(module: ModuleOp) -> bool:
        error = failing(module)
        return error is not None and cause(error) == wanted

    module = case.program.module
    error = failing(module)
    if error is None:
        raise CompileError("does-not-fail", f"seed {case.seed} fails in a campaign and not alone")
    wanted = cause(error)
    if most:
        module = reduce(module, same, most=most)
        error = failing(module) or error
    folder.mkdir(parents=True, exist_ok=True)
    return _write(case, module, numbers, error, folder)


def _write(case: Case, module: ModuleOp, numbers: Numbers, error: Exception | Endless, folder: Path) -> Path:
    """The file: one that headrace-opt fails on with as few passes as it takes, else one that says which seed it is."""
    name = f"seed-{case.seed}"
    notes = [*str(error).splitlines(), f"python -m headrace.tools.fuzz --seed {case.seed} --count 1"]
    on_device = module.clone()
    set_device(on_device, case.setting.device)
    kind = "changed-results" if isinstance(error, Disagreement) else "failure"
    trial = Trial(build(case.setting.pipeline), Predicate(kind), numbers)
    try:
        small, alone = reduce_failure(on_device, trial, most=MOST // 4)
        found = write(alone, small, Source(f"{name}.mlir"), f"{folder}/", notes)
    except CompileError:  # no pass shows it
        found = None
    if found is not None:
        return found
    path = folder / f"{name}.mlir"
    header = [f"// {line}".rstrip() for line in (*notes, f"pipeline: {case.setting.pipeline}")]
    write_text(path, "\n".join([*header, "", print_module(on_device, locations=True)]))
    store = numbers.store(module)
    save_arrays(folder / f"{name}.inputs.npz", numbers.arrays(module))
    save_arrays(folder / f"{name}.weights.npz", {key: store.array(key) for key in weight_types(module)})
    return path
