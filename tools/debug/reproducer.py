"""A failure as one file: the IR before the pass that fails, the RUN line that fails on it, and the error.

Nothing is kept while passes run: on a failure they are run again from the input, up to the pass that fails. What was
written is read and run once more; what does not fail alone is written with all passes that it takes.
"""

from __future__ import annotations

import re
import shlex
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from headrace.dialects.support.files import write_text
from headrace.tools.debug.failures import Failure, Predicate, Trial, print_module
from headrace.tools.debug.numbers import RANDOM, Numbers
from headrace.tools.opt import Refused, parse

NONE = "none"
RUN = re.compile(r"^// RUN: (.*)$", re.M)
DIRECTIVE = re.compile(r"\b(RUN|CHECK[A-Z-]*|expected-[a-z]+)(?=:| *@| *\{\{)")
"""What an error must not say in a comment, or it would be a directive."""
MARK = "Reproducer"
FRAMES = 6
"""Frames of a traceback that are told, the innermost ones."""
LINES = 60
"""Lines of an error that are told."""


def default_place() -> str:
    """The folder that reproducers go to unless told otherwise."""
    return str(Path(tempfile.gettempdir()) / "headrace-reproducers") + "/"


@dataclass(frozen=True)
class Source:
    """Where a program comes from."""

    name: str
    """Its file's name."""
    device: str = ""
    """The device that was put into it, as `--device` takes it."""
    flags: tuple[str, ...] = ()
    """Flags that headrace-opt needs to read it and to know the passes."""


def reproduce(source: Source, read: Callable[[], ModuleOp], trial: Trial, error: Exception, place: str) -> str:
    """Write the reproducer of an error of the passes of `trial` to a file or a folder (one that exists, or ends in a
    slash); a line that says where it is and how to run it. `read` reads the program again. Empty where there is nothing
    to reproduce: no pass failed. Raises nothing: the error is the news."""
    if place == NONE:
        return ""
    try:
        return _reproduce(source, read, trial, error, place)
    except Exception as other:
        return f"reproducer: none; {type(other).__name__}: {other}"


def _reproduce(source: Source, read: Callable[[], ModuleOp], trial: Trial, error: Exception, place: str) -> str:
    failure = Failure.of(error, 0, "")
    value = failure.what if failure.kind == "refused" else ""
    trial = replace(trial, predicate=Predicate(failure.kind, value))
    ended = trial.run(read(), keep=True)
    if ended.before is None or ended.failure is None:
        return "" if ended.failure is not None else "reproducer: none; run again from the input, the passes do not fail"
    if not ended.found:
        return f"reproducer: none; run again from the input, {ended.failure.spec} fails with {ended.failure.kind}"
    found = ended.failure
    alone = replace(trial, passes=(trial.passes[found.number],), predicate=trial.predicate.only(found))
    notes = _trace(error) if found.kind == "crash" else []
    notes = [*found.text.splitlines()[:LINES], *notes]
    text = f"pass {found.number + 1} of {len(trial.passes)}"
    path = write(alone, ended.before, source, place, notes, text)
    if path is None:
        whole = replace(alone, passes=trial.passes[: found.number + 1])
        text = "the last pass fails only after the others"
        path = write(whole, read(), source, place, notes, text, fails=False)
    assert path is not None
    return said(path)


def write(
    trial: Trial,
    module: ModuleOp,
    source: Source,
    place: str,
    notes: Sequence[str] = (),
    what: str = "",
    *,
    fails: bool = True,
) -> Path | None:
    """Write a program on which a trial finds something as a file with its RUN line; its path. None when it has to fail
    (`fails`) and does not when it is read back. An older file stays as it is: the new one is numbered.

    The device goes into the RUN line, or nowhere where it is not needed: it is longer than most programs.
    """
    for shown, device in _devices(module, source.device):
        body = print_module(shown, locations=True)
        if _fails(trial, body, device):
            break
    else:
        if fails:
            return None
        device, body = "", print_module(module, locations=True)
    flags = [*source.flags, *(["--device", device] if device else [])]
    arguments, beside = _arguments(trial, module, flags)
    same = trial.predicate.same
    failing = "" if same is None else f" fails with {same.kind}" + (f" ({same.what})" if same.what else "")
    passes = f"`{trial.text}`" if trial.passes else f"`{trial.predicate.value}`"
    header = [f"{MARK}: {passes}{failing}{f'; {what}' if what else ''}.", f"From: {Path(source.name).name}", *notes]
    path = _free(_path(place, source.name, trial), lambda one: _text(one, arguments, header, trial, body))
    if beside is not None:
        _save(path, module, beside)
    if not path.exists():
        write_text(path, _text(path, arguments, header, trial, body))
    return path


def _devices(module: ModuleOp, device: str) -> Iterator[tuple[ModuleOp, str]]:
    """The module without its device; without it where the RUN line can name it; with it."""
    from headrace.dialects.machine.attributes import DEVICE_ATTRIBUTE

    if DEVICE_ATTRIBUTE in module.attributes:
        bare = module.clone()
        del bare.attributes[DEVICE_ATTRIBUTE]
        yield bare, ""
        if device and not Path(device).suffix:
            yield bare, device
    yield module, ""


def _path(place: str, name: str, trial: Trial) -> Path:
    path = Path(place)
    if not place.endswith("/") and not path.is_dir():
        return path
    path.mkdir(parents=True, exist_ok=True)
    stem = Path(name).stem if name not in ("-", "<stdin>") else "stdin"
    return path / f"{stem}.{trial.passes[-1].name if trial.passes else 'reduced'}.mlir"


def absolute(place: str) -> str:
    """A file by its whole path, so that it is found from everywhere; what is no file stays as it is."""
    return str(Path(place).resolve()) if Path(place).is_file() else place


def said(path: Path) -> str:
    """The line that says where a reproducer is and how to run it."""
    run = RUN.search(path.read_text(encoding="utf-8"))
    command = (run[1] if run else "").replace("%s", shlex.quote(str(path))).replace("%S", shlex.quote(str(path.parent)))
    return f"reproducer: {path}; run: {command.partition(' | ')[0]}" if command else f"reproducer: {path}"


def _free(path: Path, text: Callable[[Path], str]) -> Path:
    """The path, or one with a number that is not taken; one that holds just this text is free."""
    found, n = path, 0
    while found.exists() and found.read_bytes() != text(found).encode():
        n += 1
        found = path.with_name(f"{path.stem}.{n}{path.suffix}")
    return found


def _arguments(trial: Trial, module: ModuleOp, flags: Sequence[str]) -> tuple[list[str], Numbers | None]:
    """The arguments of headrace-opt, and the numbers that have to be kept in files beside the program."""
    arguments = ["-p", f"'{trial.text}'", *flags] if trial.passes else list(flags)
    predicate = trial.predicate
    if not predicate.executes:
        return arguments, None
    numbers, beside = trial.numbers, None
    if numbers.tolerance is not None:
        arguments += ["--tolerance", str(numbers.tolerance)]
    if not numbers.seeded:
        seeded = replace(numbers, weights=RANDOM, inputs=RANDOM)
        if replace(trial, numbers=seeded)(module):
            numbers = seeded
        else:
            beside = numbers
            numbers = replace(numbers, weights="%S/{stem}.weights.npz", inputs="%S/{stem}.inputs.npz")
    return [*arguments, "--check-execution", str(numbers.inputs), "--weights", str(numbers.weights)], beside


def _text(path: Path, arguments: Sequence[str], header: Sequence[str], trial: Trial, body: str) -> str:
    """The whole file."""
    given = " ".join(arguments).replace("{stem}", path.stem)
    lines: list[str] = []
    if trial.predicate.kind == "command":
        lines.append(f"// The IR that this leaves is what this command looks for: {trial.predicate.value}")
    if not trial.passes:
        pass
    elif trial.predicate.kind == "refused":
        lines.append(f"// RUN: headrace-opt %s {given} --verify-diagnostics")
        told = trial.predicate.same.text if trial.predicate.same else ""
        codes = re.findall(r"^error\[([\w-]+)\]", told, re.M) or [trial.predicate.value]
        lines += [f"// expected-error @* {{{{[{code}]}}}}" for code in codes]
    else:
        lines.append(f"// RUN: headrace-opt %s {given} | filecheck %s")
        symbol = re.search(r"^ *(\w+\.\w+ (?:private )?@[\w$.-]+)", body, re.M)
        lines.append(f"// CHECK: {symbol[1] if symbol else 'builtin.module'}")
    comments = (DIRECTIVE.sub(r"\1-", f"// {line}".rstrip()) for line in header)
    lines += ["", *comments, "", body]
    return "\n".join(lines)


def _fails(trial: Trial, body: str, device: str) -> bool:
    """Whether the text, read back, fails as it should."""
    from headrace.dialects.machine.attributes import set_device
    from headrace.dialects.machine.device import load_device

    try:
        module, _ = parse(trial.context(), body, "reproducer.mlir")
    except Refused:
        return False
    if device:
        set_device(module, load_device(device))
    return trial(module)


def _save(path: Path, module: ModuleOp, numbers: Numbers) -> None:
    """The arrays of a program in files beside it."""
    from headrace.dialects.tensor.storage import weight_types
    from headrace.tools.cli.common import save_arrays

    store = numbers.store(module)
    save_arrays(path.with_name(f"{path.stem}.inputs.npz"), numbers.arrays(module))
    save_arrays(path.with_name(f"{path.stem}.weights.npz"), {key: store.array(key) for key in weight_types(module)})


def _trace(error: Exception) -> list[str]:
    """The innermost frames of an error, files from the folder of their package on."""
    cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
    frames = traceback.extract_tb(cause.__traceback__)[-FRAMES:]
    return [f"  {'/'.join(Path(f.filename).parts[-3:])}:{f.lineno} in {f.name}" for f in frames]


def arguments_in(text: str) -> Any:
    """The arguments of the first RUN line of a file that runs headrace-opt with passes; None without one."""
    from headrace.tools.opt.arguments import Usage, read

    for line in RUN.findall(text):
        words = shlex.split(line.partition("|")[0])
        if words[:1] != ["headrace-opt"]:
            continue
        try:
            found = read(words[1:])
        except Usage:
            continue
        if found.passes:
            return found
    return None
