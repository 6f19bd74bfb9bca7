"""Files that appear complete or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from headrace.dialects.support.diagnostics import CompileError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Generator[BinaryIO]:
    """A file to write into, which takes the place of `path` when the block ends and vanishes when it raises.

    `CompileError` when it cannot be written.
    """
    path = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    except OSError as error:
        raise CompileError("cannot-write", f"{path}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except OSError as error:
        os.unlink(name)
        raise CompileError("cannot-write", f"{path}: {error.strerror}") from None
    except BaseException:
        os.unlink(name)
        raise


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file, complete or not at all. `CompileError` when it cannot be written."""
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write text files, all or none: after an error those that were there are as they were, others are gone."""
    before = {path: path.read_bytes() if path.exists() else None for path in texts}
    try:
        for path, text in texts.items():
            write_text(path, text)
    except BaseException:
        restore(before)
        raise


def restore(before: Mapping[Path, bytes | None]) -> None:
    """Give files their former bytes; those that were not there (None) are removed."""
    for path, data in before.items():
        if data is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(data)
