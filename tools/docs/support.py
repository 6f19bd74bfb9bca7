"""The page of what is supported: ONNX ops by opset, ATen ops, element types by op, devices.

Nothing here is written by hand. An ONNX op's row comes from importing the cases of its test at every version that the
op has; a tensor op's types from its shape rules.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from headrace.dialects.support.diagnostics import CompileError
from headrace.tools.docs import ops


def page(root: Path) -> str:
    """The page."""
    lines = [
        "# Support",
        "",
        "`headrace plan MODEL` says the same for one model: every op, and why one is refused.",
        "",
    ]
    lines += [*_onnx(root), *_torch(), *_types(), *_devices()]
    return "\n".join(lines).rstrip() + "\n"


def _onnx(root: Path) -> Iterator[str]:
    from headrace.frontends.onnx.graph import NEWEST, OLDEST
    from headrace.frontends.onnx.ops import table
    from headrace.frontends.onnx.ops.refused import REASONS

    low, high = OLDEST, NEWEST
    cases = _cases(root)
    yield from (
        "## ONNX",
        "",
        f"Opsets {low} to {high} of the standard domain; functions of the model are inlined.",
        "",
    )
    yield "*Versions*: the definitions of an op (named by the opset in which it changed) that import; *as*: the tensor"
    yield from ("ops that its forms become, nothing where it is computed while importing.", "")
    yield from ("| op | versions | as |", "|---|---|---|")
    for name in sorted(table()):
        versions: list[int] = []
        made: dict[str, None] = {}
        for version in _versions(name, low, high):
            found = [row for case in cases.get(name, []) if (row := _imported(root, case, version)) is not None]
            if found or name not in cases:
                versions.append(version)
            made |= dict.fromkeys(op for row in found for op in row)
        yield f"| {name} | {', '.join(map(str, versions))} | {', '.join(f'`{op}`' for op in made)} |"
    yield from ("", "Refused, each with the reason and what to do instead:", "")
    yield from ("| ops | why | instead |", "|---|---|---|")
    grouped: dict[tuple[str, str], list[str]] = {}
    for name, reason in REASONS.items():
        grouped.setdefault(reason, []).append(name)
    for (why, fix), names in grouped.items():
        yield f"| {', '.join(names)} | {why} | {fix} |"
    yield ""


def _torch() -> Iterator[str]:
    """ATen ops by family. An op without an overload (`add`) stands for all that it has."""
    from headrace.frontends.torch.ops import table
    from headrace.frontends.torch.program import KEPT

    families: dict[str, list[str]] = {}
    for name, convert in table().items():
        families.setdefault(convert.__module__.rpartition(".")[2], []).append(name)
    yield from (
        "## PyTorch",
        "",
        "A module is exported and decomposed to core ATen by PyTorch, except for "
        + ", ".join(f"`{name.split('.')[1]}`" for name in KEPT)
        + ". Of that, these ops are imported; their docstrings say which forms are refused.",
        "",
    )
    yield from ("| family | ops |", "|---|---|")
    for family, names in sorted(families.items()):
        yield f"| {family} | {', '.join(f'`{name}`' for name in sorted(names))} |"
    names = ", ".join(f"`{name}`" for name in sorted(table(complex=True)))
    yield from (
        "",
        "No element type is complex. Within a program a complex number is its two parts, in Fourier transforms and "
        f"what is made of them: {names}.",
        "",
    )


def _versions(name: str, low: int, high: int) -> list[int]:
    """The versions of an op that models of opsets `low` to `high` have."""
    since = [version for version in _history().get(name, ()) if version <= high]
    older = [version for version in since if version <= low]
    return [*older[-1:], *(version for version in since if version > low)]


@cache
def _history() -> dict[str, list[int]]:
    """The versions of every op of the standard domain, ascending."""
    import onnx.defs

    found: dict[str, list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and not schema.deprecated:
            found.setdefault(schema.name, []).append(schema.since_version)
    return {name: sorted(versions) for name, versions in found.items()}


def _cases(root: Path) -> dict[str, list[Any]]:
    """The cases of the importer's test by op."""
    module = _module(root, "test/frontends/onnx/test_ops.py")
    found: dict[str, list[Any]] = {}
    for case in module.CASES:
        found.setdefault(case.op_type, []).append(case)
    return found


def _imported(root: Path, case: Any, version: int) -> list[str] | None:
    """The tensor ops that a case becomes in a version of its op; None when it has no such form or is refused."""
    from headrace.frontends.onnx import import_onnx
    from headrace.frontends.onnx.graph import OLDEST

    models = _module(root, "test/onnx_models.py")
    opset = max(version, OLDEST)
    model, _ = models.single(case.op_type, case.operands, case.known, opset, case.outputs, **case.attributes)
    try:
        result = import_onnx(model)
    except CompileError:
        return None
    made = [op.name.removeprefix("tensor.") for op in result.module.walk() if op.name.startswith("tensor.")]
    return [name for name in made if name not in ("constant", "weight")]


def _module(root: Path, path: str) -> Any:
    """A module of the tests."""
    name = f"headrace_docs_{Path(path).stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, root / path)
        assert spec is not None and spec.loader is not None
        sys.path.insert(0, str(root / "test"))
        try:
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
        finally:
            sys.path.pop(0)
    return sys.modules[name]


def _types() -> Iterator[str]:
    from headrace.dialects.support.dtypes import BITS

    yield from (
        "## Element types",
        "",
        f"{', '.join(f'`{name}`' for name in BITS)}: `i…` are signed, `ui…` unsigned; f8e4m3 is",
        "stored, moved and cast only.",
        "",
    )
    yield (
        "What the tensor ops take. *Floats* are f64, f32, f16 and bf16; *numbers* floats and integers; *any* i1 and"
        " f8e4m3 too."
    )
    yield from ("", "| element types | ops |", "|---|---|")
    grouped: dict[str, list[str]] = {}
    for op in ops.load("tensor").operations:
        types = "; ".join(ops.element_types(op))
        if types:
            grouped.setdefault(types, []).append(op.name.removeprefix("tensor."))
    for types, names in grouped.items():
        yield f"| {types} | {', '.join(f'`{name}`' for name in names)} |"
    yield ""


def _devices() -> Iterator[str]:
    from headrace.dialects.machine.device import device_names, load_device
    from headrace.tools.cli.devices import overview, size

    yield from ("## Devices", "", "`headrace devices NAME` shows every number and where it comes from.", "")
    yield "| device | PCU | PMU | AGCU | clock | SRAM | HBM | DDR | native types |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for one in (overview(load_device(name)) for name in device_names()):
        hbm = f"{size(one['hbm_bytes'])}, {one['hbm_bandwidth'] / 1e9:.0f} GB/s" if one["hbm_bytes"] else "none"
        ddr = f"{size(one['ddr_bytes'])}, {one['ddr_bandwidth'] / 1e9:.0f} GB/s"
        yield (
            f"| {one['name']} | {one['pcus']} | {one['pmus']} | {one['agcus']} | {one['clock_hz'] / 1e9:.2f} GHz "
            f"| {size(one['sram_bytes'])} | {hbm} | {ddr} | {' '.join(one['types'])} |"
        )
