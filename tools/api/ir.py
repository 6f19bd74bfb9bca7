"""IR in Python and in notebooks: look at a program, run passes on it, see what they changed, where an op came from.

    m = headrace.ir.load("model.onnx")          # or parse(text); ONNX, or a file of IR
    n = m.run("canonicalize,fuse")              # another module; m stays as it is
    m.diff(n).show()
    n.ops("tensor.gelu")[0].origin()            # the nodes of the model that it stands for
    n.ops("tensor.gelu")[0].why("dataflow")     # what becomes of it, pass by pass, and why

In a notebook `show()` is coloured and a line says where it came from when the mouse is on it; in a terminal it is
coloured when Pygments is installed. Values are called by their weights, and long constants are shown in short.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.dialects.support.diagnostics import CompileError, Diagnostic

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.ir import Operation

    from headrace.dialects.machine.device import Device
    from headrace.passes.infra.changes import Line, Snapshot

MOST = 400
"""Lines that `show` shows of a module."""


def parse(text: str, name: str = "<text>") -> Module:
    """The module of a text of IR; `CompileError` with everything that is wrong with it."""
    from headrace.tools.opt import Refused, context
    from headrace.tools.opt import parse as parse_text

    try:
        module, _ = parse_text(context(), text, name)
    except Refused as refused:
        raise CompileError.many(
            Diagnostic("bad-ir", one.message, location=f"{name}:{one.line}:{one.column}" if one.line else name)
            for one in refused.refusals
        ) from None
    return Module(module)


def load(model: Any, *, to: str = "import", device: str | Path | Device | None = None, **options: Any) -> Module:
    """The IR of a model (.onnx, .mlir, or an `onnx.ModelProto`) after phase `to`; `options` are those of
    `headrace.lowered`. Weights are not read."""
    from headrace.compiler import lowered

    options.setdefault("shape_only", True)
    return Module(lowered(model, to, device, **options))


@dataclass(frozen=True)
class Module:
    """A module of IR that stays as it is: passes give another one. `module` is xDSL's."""

    module: ModuleOp
    _made_from: tuple[Module, Snapshot] | None = field(default=None, repr=False)

    def run(self, passes: str, device: str | Path | Device | None = None) -> Module:
        """The module after these passes (`canonicalize,tile{rows=2}`, or a pipeline such as `dataflow`).

        `CompileError` when a pass refuses the program; `PassBug` when one breaks its contract.
        """
        from headrace.compiler import lower
        from headrace.passes.infra.changes import Snapshot
        from headrace.passes.infra.manager import Watch

        copy = self.module.clone()
        snapshot = Snapshot(copy)
        lower(copy, device, passes, watch=Watch(verify_each=True))
        return Module(copy, (self, snapshot))

    def ops(self, name: str = "") -> list[Op]:
        """All ops, or those of a name (`tensor.matmul`, or `matmul` for short), in order."""
        wanted = (name, f"tensor.{name}") if "." not in name else (name,)
        return [Op(op, self) for op in self.module.walk() if (op.name in wanted if name else op is not self.module)]

    def counts(self) -> dict[str, int]:
        """How many ops of each name there are, most first."""
        from collections import Counter

        return dict(Counter(op.name for op in self.module.walk() if op is not self.module).most_common())

    def diff(self, other: Module) -> Difference:
        """What another module has otherwise: a difference of the functions, sections or configs that are not equal."""
        if other._made_from is not None and other._made_from[0] is self:
            snapshot = other._made_from[1]
            touched = [change for change in snapshot.changes() if change.after is not snapshot.module]
            return Difference("\n".join(change.text() for change in touched))
        return Difference("\n".join(_differences(_texts(self.module), _texts(other.module))))

    def why(self, op: Op | str, passes: str = "default", device: str | Path | Device | None = None) -> Story:
        """What becomes of an op, or of the nodes that a text names, under these passes: the patterns that applied, why
        others did not, what searches decided. A refusal ends the story."""
        from headrace.compiler import lower
        from headrace.dialects.support import locations
        from headrace.dialects.support.journal import recording
        from headrace.passes.infra.manager import Watch
        from headrace.tools.why import Follow

        nodes = locations.nodes(op.op.location) if isinstance(op, Op) else ()
        copy = self.module.clone()
        follow = Follow(copy, next(iter(nodes), op.name) if isinstance(op, Op) else op)
        with recording(follow.journal):
            try:
                lower(copy, device, passes, watch=Watch(check=follow.after))
            except CompileError as error:
                follow.failed(follow.journal.pass_name)
                return Story(f"{follow.text()}\n\n{error}")
        return Story(follow.text())

    def show(self, most: int = MOST) -> None:
        """Show the module, up to so many lines."""
        _show(_Shown([*self._lines()], most))

    def text(self) -> str:
        """The module in full, as `parse` reads it; with locations."""
        import io

        from xdsl.printer import Printer

        out = io.StringIO()
        Printer(out, print_debuginfo=True).print_op(self.module)
        return out.getvalue()

    def _lines(self) -> Iterator[Line]:
        from headrace.passes.infra.changes import readable

        for op in self.module.body.block.ops:
            yield from readable(op)

    def __str__(self) -> str:
        return "\n".join(line.text for line in self._lines())

    def _repr_html_(self) -> str:
        return _Shown([*self._lines()], MOST).html()


@dataclass(frozen=True)
class Op:
    """An op of a module. `op` is xDSL's."""

    op: Operation
    module: Module

    @property
    def name(self) -> str:
        """Its name, such as `tensor.matmul`."""
        return self.op.name

    def origin(self) -> str:
        """Where it came from: the nodes of the model, or the place in the text, that it stands for."""
        from headrace.dialects.support import locations

        return locations.of(self.op)

    def why(self, passes: str = "default", device: str | Path | Device | None = None) -> Story:
        """What becomes of it under these passes, and why."""
        return self.module.why(self, passes, device)

    def show(self) -> None:
        """Show the op."""
        _show(self)

    def _lines(self) -> list[Line]:
        from headrace.passes.infra.changes import readable

        return readable(self.op)

    def __str__(self) -> str:
        return "\n".join(line.text for line in self._lines())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return _Shown(self._lines(), MOST).html()


@dataclass(frozen=True)
class Difference:
    """What differs between two modules: nothing when it is false."""

    text: str

    def __bool__(self) -> bool:
        return bool(self.text)

    def __str__(self) -> str:
        return self.text or "no difference"

    def __repr__(self) -> str:
        return str(self)

    def show(self) -> None:
        """Show the difference, coloured where that is possible."""
        _show(self)

    def _repr_html_(self) -> str:
        return _pre(_html(str(self), "diff"))


class Story(str):
    """A text that prints as it is."""

    def __repr__(self) -> str:
        return str(self)

    def show(self) -> None:
        """Show the text."""
        print(self)


@dataclass(frozen=True)
class _Shown:
    """Lines of IR to show, some at most."""

    lines: Sequence[Line]
    most: int

    def _rest(self) -> str:
        more = len(self.lines) - self.most
        return f"\n… {more:,} more lines: str() gives all" if more > 0 else ""

    def __str__(self) -> str:
        return "\n".join(line.text for line in self.lines[: self.most]) + self._rest()

    def _repr_html_(self) -> str:
        return self.html()

    def html(self) -> str:
        """The lines for a notebook."""
        lines = self.lines[: self.most]
        coloured = _html("\n".join(line.text for line in lines)).split("\n")
        if len(coloured) < len(lines):  # Pygments drops empty lines at the end
            coloured += [""] * (len(lines) - len(coloured))
        rows = [
            f'<span title="{escape(line.origin)}">{row}</span>' if line.origin else row
            for line, row in zip(lines, coloured, strict=False)
        ]
        return _pre("\n".join(rows) + escape(self._rest()))


def _pre(html: str) -> str:
    return f'<pre style="line-height: 1.3; overflow-x: auto; white-space: pre">{html}</pre>'


def _html(text: str, language: str = "mlir") -> str:
    """The text as HTML, coloured when Pygments is installed."""
    try:
        from pygments import highlight

        formatters: Any = import_module("pygments.formatters")
    except ImportError:
        return escape(text)
    coloured: str = highlight(text, _lexer(language), formatters.HtmlFormatter(noclasses=True, nowrap=True))
    return coloured.rstrip("\n")


def _lexer(language: str) -> Any:
    if language == "mlir":
        from headrace.tools.lexer import MlirLexer

        return MlirLexer(stripnl=False)
    from pygments.lexers.diff import DiffLexer

    return DiffLexer(stripnl=False)


def _show(thing: Any) -> None:
    """Show a thing in the notebook that we are in, or print it, coloured on a terminal."""
    notebook: Any = sys.modules.get("IPython")
    if notebook is not None and notebook.get_ipython() is not None:
        notebook.display.display(thing)
        return
    text = str(thing)
    if sys.stdout.isatty():
        try:
            from pygments import highlight

            formatters: Any = import_module("pygments.formatters")
        except ImportError:
            pass
        else:
            language = "diff" if isinstance(thing, Difference) else "mlir"
            coloured: str = highlight(text, _lexer(language), formatters.TerminalFormatter())
            text = coloured.rstrip("\n")
    print(text)


def _texts(module: ModuleOp) -> dict[str, list[str]]:
    """Lines of each op at the top of a module, by kind and symbol."""
    from headrace.passes.infra.changes import readable, symbol_of

    found: dict[str, list[str]] = {}
    for number, op in enumerate(module.body.block.ops):
        symbol = symbol_of(op)
        found[f"{op.name} @{symbol}" if symbol else f"{op.name} {number}"] = [line.text for line in readable(op)]
    return found


def _differences(before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> Iterator[str]:
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name, []), after.get(name, [])
        if old != new:
            yield from difflib.unified_diff(old, new, f"before {name}", f"after {name}", lineterm="", n=2)
