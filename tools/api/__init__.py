"""Headrace: a compiler and runtime for reconfigurable dataflow units.

Everything is loaded on first use, so `import headrace` costs nothing; `dir(headrace)` lists what there is.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace import ir
    from headrace.compiler import Executable, Runtime, compile, load, lowered
    from headrace.dialects.support.diagnostics import CompileError
    from headrace.frontends.torch.breaks import GraphBreak
    from headrace.training import TrainingStep, compile_training

# name -> module that defines it. The modules of tools/api install beside this file, as headrace.<module>.
_EXPORTS = {
    "CompileError": "headrace.dialects.support.diagnostics",
    "compile": "headrace.compiler",
    "compile_training": "headrace.training",
    "load": "headrace.compiler",
    "lowered": "headrace.compiler",
    "Executable": "headrace.compiler",
    "Runtime": "headrace.compiler",
    "TrainingStep": "headrace.training",
    "GraphBreak": "headrace.frontends.torch.breaks",
}

__all__ = [
    "CompileError",
    "Executable",
    "GraphBreak",
    "Runtime",
    "TrainingStep",
    "compile",
    "compile_training",
    "ir",
    "load",
    "lowered",
]


def __getattr__(name: str) -> Any:
    """Load `name` from the module that defines it."""
    if name == "__version__":
        return import_module("headrace.version").VERSION
    if name == "ir":
        return import_module("headrace.ir")
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({"__version__", *__all__})
