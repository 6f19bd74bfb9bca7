"""Configurations of language models, as Hugging Face models have them in `config.json`, by name.

Those shipped (configurations/*.json) hold what shapes and arithmetic depend on. How a checkpoint stores its weights
(fp8 blocks, mxfp4) is not part of them: an import says in which type weights are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from headrace.dialects.support.diagnostics import CompileError, nearest

FOLDER = Path(__file__).parent / "configurations"
SAME = {
    "deepseek-r1": "deepseek-v3",
    "llama-3-70b": "llama-3.1-70b",
    "llama-3.3-70b": "llama-3.1-70b",
    "minimax-m2.1": "minimax-m2",
    "minimax-m2.5": "minimax-m2",
    "minimax-m2.7": "minimax-m2",
}
"""Models that have the shapes of another."""
NAMES = tuple(sorted([*(path.stem for path in FOLDER.glob("*.json")), *SAME]))
"""The models there are configurations of."""


def is_configuration(model: str) -> bool:
    """Whether a model that a user names is a configuration: a .json file, a folder with a `config.json`, or a word that
    is a name here, or nearly one and no file."""
    path = Path(model)
    if path.suffix == ".json" or model.lower() in NAMES:
        return True
    if path.exists():
        return (path / "config.json").is_file()
    return bool(get_close_matches(model.lower(), NAMES, n=1, cutoff=0.75))


def configuration(model: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name and the configuration of a model: one shipped, by name; a `config.json`, or its folder, by path; or as
    given. `CompileError` says what is known when there is none."""
    if isinstance(model, Mapping):
        return _checked(str(model.get("_name_or_path") or model.get("model_type", "model")), "the configuration", model)
    text = os.fspath(model)
    path = Path(text)
    if path.is_dir():
        path = path / "config.json"
    elif path.suffix != ".json":
        name = text.lower()
        if name not in NAMES:
            raise CompileError(
                "unknown-model",
                f"there is no configuration '{text}'",
                why="a model of this kind is given by name or as the path of its config.json",
                fix=nearest(name, NAMES),
            )
        return name, _read(FOLDER / f"{SAME.get(name, name)}.json")[1]
    return _read(path)


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    name = path.resolve().parent.name if path.stem == "config" else path.stem
    try:
        given = json.loads(path.read_bytes())
    except OSError as error:
        raise CompileError("no-such-file", f"cannot read '{path}': {error.strerror}") from None
    except ValueError as error:
        raise CompileError("bad-config", f"{path}: not JSON: {error}") from None
    return _checked(name, str(path), given)


def _checked(name: str, where: str, given: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(given, Mapping) or not isinstance(given.get("model_type"), str):  # pyright: ignore
        raise CompileError(
            "bad-config",
            f"{where} is no configuration of a model",
            why="it is a JSON object that names a 'model_type'",
            fix="give the config.json of a Hugging Face model",
        )
    return name, dict(cast("Mapping[str, Any]", given))
