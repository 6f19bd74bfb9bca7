"""Whose a line of Python is, and where in the user's code an error arose."""

from __future__ import annotations

import os
import traceback
from functools import cache
from pathlib import Path

TYPED = ("<stdin>", "<ipython-input", "<doctest ")
"""How what is typed into Python, or stands in a doctest, is called."""


@cache
def is_torch(path: str) -> bool:
    """Whether a file is one of PyTorch."""
    import torch

    return path.startswith(os.path.dirname(torch.__file__))


@cache
def is_own(path: str) -> bool:
    """Whether a file is a model's: not one of PyTorch or of Python, nor made up, but for what is typed in."""
    if path.startswith("<"):
        return path.startswith(TYPED)
    return not is_torch(path) and not path.startswith(os.path.dirname(os.__file__))


@cache
def is_users(path: str) -> bool:
    """Whether a file is the user's: a model's, and not of a package that is installed, nor of Headrace."""
    return is_own(path) and not {"site-packages", "dist-packages"} & {*Path(path).parts} and not is_ours(path)


@cache
def is_ours(path: str) -> bool:
    """Whether a file is one of Headrace."""
    root = Path(__file__).resolve().parents[2]
    ours = tuple(f"{root / part}{os.sep}" for part in ("frontends", "tools"))
    return str(Path(path).resolve()).startswith(ours)


def user_line(error: BaseException) -> str:
    """Where in the user's code an error arose: the last frame that is not of a library; empty when there is none."""
    return _last(traceback.extract_tb(error.__traceback__))


def calling_line() -> str:
    """Where in the user's code what runs now was called; empty when it was not from there."""
    return _last(traceback.extract_stack())


def _last(stack: traceback.StackSummary) -> str:
    frame = next((one for one in reversed(stack) if is_own(one.filename) and not is_ours(one.filename)), None)
    return f"{frame.filename}:{frame.lineno}" if frame is not None else ""
