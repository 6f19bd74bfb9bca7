"""The executable of a model that was compiled in this process: it binds its memory when it is first used."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from headrace.dialects.support.diagnostics import CompileError
from headrace.runtime import session
from headrace.runtime.cluster.mesh import MeshExecutable

if TYPE_CHECKING:
    import numpy as np

    from headrace.compiler import Translation

    Array = np.ndarray[Any, np.dtype[Any]]


class _Compiled(session.Executable):
    """Runs like any executable. Saving and profiling bind nothing, so a model compiled without weights can do both."""

    def __init__(self, done: Translation) -> None:
        """`done` is what the compiler made; its weights are evaluated when the memory is bound."""
        self._done = done
        self._bound = False
        self.program = done.program
        self.weights = done.weights or NoWeights()
        self.manifest = done.manifest

    def __getattr__(self, name: str) -> Any:
        """What binding sets: bind, and give it."""
        if name.startswith("__") or self.__dict__.get("_bound", True):
            raise AttributeError(f"an executable has no attribute '{name}'")
        self._bound = True
        try:
            first = self._done.initial()
            super().__init__(self._done.program, self.weights, check=False, manifest=self.manifest, initial=first)
        except BaseException:
            self._bound = False
            raise
        return getattr(self, name)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact; `CompileError` when it cannot be written."""
        self._done.write(path)


class CompiledExecutable(_Compiled):
    """A model compiled for one socket."""


class CompiledMesh(_Compiled, MeshExecutable):
    """A model compiled for several sockets, which all run in this process."""


def compiled(done: Translation) -> _Compiled:
    """The executable of what the compiler made."""
    return (CompiledMesh if done.program.sockets > 1 else CompiledExecutable)(done)


class NoWeights:
    """Stands for the weights of a model that was compiled without them."""

    def array(self, key: str) -> Array:
        """Refuses."""
        raise CompileError(
            "missing-weight",
            f"no bytes for weight '{key}'",
            why="the model was compiled without its weights (shape_only)",
            fix="compile it with its weights to run it",
        )
