"""What a module does beside computing its results: what it prints, and what it leaves changed outside its buffers.

An export runs the module once, in Python. What is no tensor op happens then, and never when the program runs; so a
module that does such a thing is refused. Only the user's own code is looked at, not installed packages.
"""

from __future__ import annotations

import dis
import inspect
import logging
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, cast

from headrace.dialects.support.diagnostics import Collector, CompileError
from headrace.frontends.torch.lines import is_torch, is_users

FIX = "move it out of forward, or guard it with `if not torch.compiler.is_exporting():`"
MOST = 4096
"""Elements of a container that are looked at."""
NOISY = ("torch.fx.experimental.symbolic_shapes", "torch.export")
"""Loggers of what PyTorch then raises as an error, too."""


@dataclass
class Effects:
    """What was seen."""

    errors: Collector = field(default_factory=Collector)
    written: list[tuple[_Held, Any]] = field(default_factory=list["tuple[_Held, Any]"])
    """Attributes that were set, and to what."""

    @contextmanager
    def kept(self) -> Generator[None]:
        """Within, attributes are what they were set to."""
        for one, value in self.written:
            one.space[one.name] = value
        try:
            yield
        finally:
            for one, _ in self.written:
                one.space[one.name] = one.value

    def add(self, what: str, location: str, fix: str = FIX) -> None:
        """Note an effect, once for each line."""
        why = "it would happen while the model is compiled and never when it runs"
        if all((one.what, one.location) != (what, location) for one in self.errors.diagnostics):
            self.errors.add("side-effect", what, why=why, fix=fix, location=location)


class _Stream:
    """Stands for an output stream: nothing that the module or PyTorch writes is shown."""

    def __init__(self, plain: Any, name: str, seen: Effects) -> None:
        self._plain, self._name, self._seen = plain, name, seen

    def write(self, text: str) -> int:
        """Write what others than these write."""
        here = inspect.currentframe()
        frame = here.f_back if here is not None else None
        assert frame is not None
        path = frame.f_code.co_filename
        if is_users(path):
            self._seen.add(f"{self._name} prints", f"{path}:{frame.f_lineno}")
        elif not is_torch(path):
            return self._plain.write(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)


@contextmanager
def watched(module: Any, again: bool = False) -> Generator[Effects]:
    """Watch what a module does within; nothing that it prints is shown, nor what PyTorch prints of its own failures.
    What is written to an attribute may be a memo, or an intermediate result; when it is called `again` with it, a
    change is one that each call makes."""
    seen = Effects()
    name = type(module).__name__
    held = list(_held(module))

    def look(*_: Any) -> None:
        for one in held:
            if not one.changed():
                continue
            if one.attribute and not again:
                seen.written.append((one, _stand_in(one.space.get(one.name))))
            else:
                seen.add(f"{name} changes {one.what}", one.location(), one.fix)

    hook = module.register_forward_hook(look)  # PyTorch puts attributes back when it has exported
    streams = sys.stdout, sys.stderr
    loggers = [(one, one.disabled) for one in map(logging.getLogger, NOISY)]
    sys.stdout, sys.stderr = (_Stream(one, name, seen) for one in streams)
    for logger, _ in loggers:
        logger.disabled = True
    try:
        yield seen
    finally:
        sys.stdout, sys.stderr = streams
        hook.remove()
        for one in held:
            if one.attribute:
                one.restore()
        for logger, disabled in loggers:
            logger.disabled = disabled


@contextmanager
def assigned(module: Any) -> Generator[None]:
    """What forward assigns to a buffer is written into it at the end, as PyTorch exports assignments of the root only;
    and a line of the user's that takes `x.data` takes `x.detach()`, as an export does not see the former."""
    import torch as library

    torch: Any = library
    before: list[tuple[dict[str, Any], str, Any]] = []
    plain: Any = torch._C.TensorBase.data

    def start(*_: Any) -> None:
        before[:] = [
            (one._buffers, name, x)
            for one in module.modules()
            for name, x in one._buffers.items()
            if one is not module and x is not None
        ]

    def end(*_: Any) -> None:
        for buffers, name, was in before:
            now: Any = buffers.get(name)
            if now is was or not isinstance(now, torch.Tensor):
                continue
            if now.shape != was.shape or now.dtype != was.dtype:
                raise CompileError(
                    "side-effect",
                    f"buffer '{name}' becomes {tuple(now.shape)} of {now.dtype}",
                    why=f"a state keeps its shape and its type, {tuple(was.shape)} of {was.dtype}",
                    fix="make it as large as it gets, and write parts of it",
                )
            with torch.no_grad():
                was.copy_(now.detach())
            buffers[name] = was

    def get(x: Any) -> Any:
        return x.detach() if _caller(inspect.currentframe()) else plain.__get__(x)

    def set(x: Any, value: Any) -> None:
        location = _caller(inspect.currentframe())
        if location:
            raise CompileError(
                "side-effect",
                "forward assigns to the .data of a tensor",
                why="an export does not see it",
                fix="write it under torch.no_grad(): x.copy_(...)",
                location=location,
            )
        plain.__set__(x, value)

    hooks = module.register_forward_pre_hook(start), module.register_forward_hook(end)
    torch.Tensor.data = property(get, set)
    try:
        yield
    finally:
        del torch.Tensor.data
        for hook in hooks:
            hook.remove()


def _caller(frame: FrameType | None) -> str:
    """The line that calls what a frame is of, where it is the user's."""
    caller = frame.f_back if frame is not None else None
    path = caller.f_code.co_filename if caller is not None else ""
    return f"{path}:{caller.f_lineno}" if caller is not None and is_users(path) else ""


@dataclass
class _Held:
    """A name of the user's code, and what it stood for."""

    what: str
    name: str
    space: dict[str, Any]
    codes: tuple[CodeType, ...]
    value: Any
    content: Any
    fix: str = FIX
    attribute: bool = False

    def changed(self) -> bool:
        """Whether it stands for something else now, or what it stands for holds something else."""
        now = self.space.get(self.name, self)
        same = now is self.value or (type(now) in PLAIN and type(now) is type(self.value) and now == self.value)
        return not same or not _same(_content(now), self.content)

    def restore(self) -> None:
        """Have a container hold again what it held: PyTorch leaves tensors of the export in it."""
        content, held = self.content, self.value
        if not isinstance(content, list) or _same(_content(held), content):
            return
        first = cast("list[Any]", content)
        if isinstance(held, dict):
            table = cast("dict[Any, Any]", held)
            table.clear()
            table.update(zip(first[::2], first[1::2], strict=True))
        elif isinstance(held, list):
            held[:] = first
        elif isinstance(held, set):
            elements = cast("set[Any]", held)
            elements.clear()
            elements.update(first)

    def location(self) -> str:
        """The line that writes it; else the first that reads it."""
        for wanted in (("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR"), ("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD")):
            for code in self.codes:
                line = code.co_firstlineno
                for one in dis.get_instructions(code):
                    line = one.starts_line or line
                    if one.opname in wanted and one.argval == self.name:
                        return f"{code.co_filename}:{line}"
        return f"{self.codes[0].co_filename}:{self.codes[0].co_firstlineno}" if self.codes else ""


PLAIN = (bool, int, float, complex, str, bytes, type(None))
PASSED = (ModuleType, FunctionType, type, property, staticmethod, classmethod)
"""Values of names that code imports or defines: they may appear while it runs."""


def _held(module: Any) -> Iterator[_Held]:
    """Globals of the user's code that the module runs, and attributes of its modules."""
    import torch

    internal = vars(torch.nn.Module())
    spaces: dict[int, tuple[dict[str, Any], dict[int, CodeType]]] = {}
    for path, one in module.named_modules():
        own = cast("dict[str, Any]", vars(one))
        held = [*(x for kind in type(one).__mro__ for x in vars(kind).values()), *own.values()]
        functions = [x for x in held if isinstance(x, FunctionType) and is_users(x.__code__.co_filename)]
        for function in functions:
            space, found = spaces.setdefault(id(function.__globals__), (function.__globals__, {}))
            if id(function.__code__) not in found:
                found.update({id(code): code for code in _codes(function.__code__)})
        codes = tuple(code for x in functions if x.__name__ != "__init__" for code in _codes(x.__code__))
        if not codes:
            continue
        for name, value in own.items():
            if name in internal or value is None:
                continue
            what = f"attribute {path}{'.' if path else ''}{name}"
            if isinstance(value, torch.Tensor | int | float):
                first = "..." if isinstance(value, torch.Tensor) else f"torch.tensor({value!r})"
                fix = f"make it a buffer: self.register_buffer('{name}', {first})"
                yield _Held(what, name, own, codes, value, _content(value), fix, True)
            elif type(value) in (*PLAIN, list, dict, set):
                yield _Held(what, name, own, codes, value, _content(value), FIX, True)
    for space, found in spaces.values():
        for one in space.values():
            if isinstance(one, FunctionType) and one.__globals__ is space:
                found.update({id(code): code for code in _codes(one.__code__)})
        used = {name for code in found.values() for name in code.co_names}
        for name, value in list(space.items()):
            if name in used and not name.startswith("__") and not isinstance(value, PASSED):
                yield _Held(f"global {name}", name, space, tuple(found.values()), value, _content(value))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def _content(value: Any) -> Any:
    """What a value holds, one level deep, kept alive so that nothing else comes to lie there."""
    if isinstance(value, dict):
        items = list(cast("dict[Any, Any]", value).items())
        return [x for pair in items for x in pair] if len(items) <= MOST else len(items)
    if isinstance(value, list | set | frozenset):
        elements = cast("list[Any]", value)
        return list(elements) if len(elements) <= MOST else len(elements)
    if type(value) in PLAIN or isinstance(value, PASSED) or callable(value):
        return None
    own: dict[str, Any] | None = getattr(value, "__dict__", None)
    return [x for pair in own.items() for x in pair] if own is not None and len(own) <= MOST else None


def _stand_in(value: Any) -> Any:
    """A value as it would be at the next call: tensors of an export are of no use in another."""
    import torch
    from torch.utils._pytree import tree_map

    def made(x: Any) -> Any:
        static = isinstance(x, torch.Tensor) and all(type(n) is int for n in x.shape)
        return torch.zeros(tuple(x.shape), dtype=x.dtype) if static else x

    return tree_map(made, value)


def _same(now: Any, then: Any) -> bool:
    if isinstance(now, list) and isinstance(then, list):
        pairs = list(zip(cast("list[Any]", now), cast("list[Any]", then), strict=False))
        same = all(a is b or (type(a) in PLAIN and type(a) is type(b) and a == b) for a, b in pairs)
        return same and len(cast("list[Any]", now)) == len(cast("list[Any]", then))
    return now is then or (isinstance(now, int) and now == then)
