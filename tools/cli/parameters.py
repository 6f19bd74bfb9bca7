"""Flags for the parameters of a Python callable: their names, types and defaults are those of its signature.

--width 64  --no-bias  --sizes 64,32  --act gelu (a Literal or an Enum)  --dtype bf16  --limit none
"""

from __future__ import annotations

import ast
import enum
import inspect
import sys
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from headrace.dialects.support.diagnostics import Collector, nearest

WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
SEQUENCES = (list, tuple, set, frozenset, Sequence)


class Parameters:
    """The parameters of a callable."""

    def __init__(self, made: Any, name: str, taken: Collection[str] = ()) -> None:
        """`taken` are flags of the command: a parameter of such a name is `--model-NAME`."""
        signature = inspect.signature(made)
        self.name = name
        self.taken = taken
        self.known = {
            p.name: p for p in signature.parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        }
        self.open = any(p.kind == p.VAR_KEYWORD for p in signature.parameters.values())
        """Whether it takes any keyword."""
        target = made.__init__ if isinstance(made, type) else made
        try:
            self.types: dict[str, Any] = typing.get_type_hints(target)
        except (NameError, TypeError, AttributeError):  # names of annotations that are not there when it runs
            self.types = {}

    def flags(self) -> list[tuple[str, str]]:
        """Each flag and what it takes, for people."""
        rows: list[tuple[str, str]] = []
        for key, parameter in self.known.items():
            wanted = self._type(key)
            shown = "required" if parameter.default is parameter.empty else f"default: {_default(parameter.default)}"
            flag = self._flag(key)
            if wanted is bool:
                rows.append((f"{flag} / --no-{flag[2:]}", f"[{shown}]"))
            else:
                rows.append((f"{flag} {_named(wanted)}", f"[{shown}]"))
        if self.open:
            rows.append(("--NAME VALUE", "any other keyword"))
        return rows

    def given(self, flags: Mapping[str, str]) -> dict[str, Any]:
        """Arguments by name. `CompileError` lists all flags that are unknown, missing or of another type."""
        errors = Collector()
        names = {self._flag(key): key for key in self.known}
        switches = {f"--no-{flag[2:]}": key for flag, key in names.items() if self._type(key) is bool}
        found: dict[str, Any] = {}
        seen: set[str] = set()
        for flag, text in flags.items():
            plain = flag.replace("_", "-")
            key = names.get(plain) or switches.get(plain)
            if key is None and not self.open:
                close = nearest(plain, names) if names else ""
                fix = close if close.startswith("did") else ""
                why = f"{self.name} takes {', '.join(names) or 'no parameters'}"
                errors.add(
                    "bad-option", f"{self.name} has no parameter for {flag}", why=why, fix=fix or "give one of these"
                )
                continue
            key = key or flag[2:].replace("-", "_")
            if key in seen:
                errors.add("bad-option", f"{flag} is given twice")
            seen.add(key)
            try:
                value = _value(text, self._type(key))
                found[key] = not value if plain in switches and plain not in names else value
            except ValueError as error:
                errors.add("bad-option", f"{flag} {text}: {error}", fix=f"{self._flag(key)} {_named(self._type(key))}")
        for key, parameter in self.known.items():
            if parameter.default is parameter.empty and key not in seen:
                wanted = self._type(key)
                fix = f"give {self._flag(key)} {_named(wanted)}"
                if isinstance(wanted, type) and not _spelt(wanted):
                    fix = f"no flag makes a {wanted.__name__}: write a function in the file that gives the module"
                errors.add("bad-option", f"{self.name} needs {self._flag(key)}", fix=fix)
        errors.raise_if_any()
        return found

    def _flag(self, key: str) -> str:
        flag = f"--{key.replace('_', '-')}"
        return f"--model-{flag[2:]}" if flag in self.taken else flag

    def _type(self, key: str) -> Any:
        """The type of a parameter: as annotated, else that of its default; None when neither says."""
        parameter = self.known.get(key)
        wanted = self.types.get(key)
        if wanted is not None or parameter is None:
            return wanted
        if parameter.annotation is not parameter.empty and not isinstance(parameter.annotation, str):
            return parameter.annotation
        default = parameter.default
        if default is parameter.empty or default is None:
            return None
        return cast("Any", type(default))


def _is_dtype(wanted: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and wanted is torch.dtype


def _spelt(wanted: Any) -> bool:
    """Whether text can give a value of a class."""
    return issubclass(wanted, (*(bool, int, float, str), *SEQUENCES[:4], dict, enum.Enum)) or _is_dtype(wanted)


def _default(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return value.name
    return str(value).removeprefix("torch.") if _is_dtype(type(value)) else repr(value)


def _named(wanted: Any) -> str:
    """A type for people."""
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted is None or wanted is Any:
        return "VALUE"
    if wanted is type(None):
        return "none"
    if origin is typing.Literal:
        return "|".join(map(str, inner))
    if origin in (typing.Union, types.UnionType):
        return "|".join(_named(x) for x in inner)
    if origin in SEQUENCES or wanted in SEQUENCES:
        one = _named(next((x for x in inner if x is not ...), None))
        return f"{one},{one},…"
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        return "|".join(x.name for x in wanted)
    kind = cast("Any", wanted)
    return "DTYPE" if _is_dtype(kind) else getattr(kind, "__name__", str(kind)).upper()


def _value(text: str, wanted: Any) -> Any:
    """A flag's text as a value of a type; `ValueError` says why it is none."""
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted is None or wanted is Any:
        return _literal(text)
    if origin in (typing.Union, types.UnionType):
        if type(None) in inner and text.lower() in ("none", "null"):
            return None
        rest = [x for x in inner if x is not type(None)]
        for one in sorted(rest, key=lambda x: x is str):
            try:
                return _value(text, one)
            except ValueError as error:
                if len(rest) == 1:
                    raise
                del error
        raise ValueError(f"'{text}' is no {_named(wanted)}")
    if origin is typing.Literal:
        for one in inner:
            if str(one) == text:
                return one
        raise ValueError(f"'{text}' is none of {', '.join(map(str, inner))}; {nearest(text, map(str, inner))}")
    if origin in SEQUENCES or wanted in SEQUENCES:
        return _sequence(text, origin or wanted, inner)
    if _is_dtype(wanted):
        return _dtype(text)
    if not isinstance(wanted, type):
        return _literal(text)
    if issubclass(wanted, enum.Enum):
        members = {x.name: x for x in wanted}
        found = members.get(text) or next((x for x in wanted if str(x.value) == text), None)
        if found is None:
            raise ValueError(f"'{text}' is none of them; {nearest(text, members)}")
        return found
    if wanted is str:
        return text
    value = WORDS.get(text.lower(), text) if wanted is bool else _literal(text)
    if wanted is float and type(value) is int:
        return float(value)
    if not _spelt(wanted):
        raise ValueError(f"no text makes a {wanted.__name__}: write a function in the file that gives the module")
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise ValueError(f"'{text}' is not of type {wanted.__name__}")
    return value


def _sequence(text: str, kind: Any, inner: tuple[Any, ...]) -> Any:
    """`1,2,3` or a literal of Python."""
    literal = _literal(text)
    if isinstance(literal, list | tuple | set):
        parts = [str(x) for x in cast("Sequence[Any]", literal)]
    else:
        parts = [x.strip() for x in text.split(",") if x.strip()]
    each = [x for x in inner if x is not ...]
    if len(each) > 1 and len(each) != len(parts):
        raise ValueError(f"{len(parts)} values are given for {len(each)}")
    values = [_value(x, each[i] if len(each) > 1 else each[0] if each else None) for i, x in enumerate(parts)]
    return {tuple: tuple, set: set, frozenset: frozenset}.get(kind, list)(values)


def _dtype(text: str) -> Any:
    """`bf16`, `bfloat16` or `torch.bfloat16`."""
    from headrace.frontends.torch.node import DTYPES

    torch = sys.modules["torch"]
    ours = {name: theirs for theirs, name in DTYPES.items()}
    name = text.removeprefix("torch.")
    name = ours.get(name, name)
    if name not in DTYPES:
        raise ValueError(f"'{text}' is no element type; {nearest(text, (*DTYPES, *ours))}")
    return getattr(torch, name)


def _literal(text: str) -> Any:
    """What Python reads; the text itself when that is nothing."""
    try:
        return ast.literal_eval({"true": "True", "false": "False", "none": "None"}.get(text.lower(), text))
    except (ValueError, SyntaxError):
        return text
