"""Graph breaks of `torch.compile`: where PyTorch ends a graph and goes on in Python, each shown once with its cause.

model.py:12: GraphBreak: the graph of forward ends here: …
"""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

SHOWN: dict[Any, int] = {}
"""What has been shown, as `warnings` keeps it."""
HINT = "torch.compile(…, fullgraph=True) makes it an error"


class GraphBreak(UserWarning):
    """Python runs between two parts of a model."""


def report(graph: Any) -> None:
    """Show why a graph that PyTorch captured ends before its function does."""
    reason = getattr(graph, "compile_subgraph_reason", None)
    if reason is None or not reason.graph_break:
        return
    _show(reason.user_stack, "the graph of {} ends here, and Python goes on", reason.reason)


def watch(backend: Callable[..., Any]) -> None:
    """Show functions that PyTorch gives up compiling for a backend."""
    from torch._dynamo.callback import callback_handler

    if not any(isinstance(one, _Skips) for one in callback_handler.end_callbacks):
        callback_handler.register_end_callback(_Skips(backend))


class _Skips:
    """Looks at how PyTorch's attempts to compile a function end."""

    def __init__(self, backend: Callable[..., Any]) -> None:
        self.backend = backend

    def __call__(self, _: Any) -> None:
        from torch._dynamo.exc import Unsupported

        error = sys.exc_info()[1]
        if isinstance(error, Unsupported) and error.skip_frame and _tried() is self.backend:
            try:
                _show(error.real_stack, "{} runs in PyTorch, not on the device", str(error))
            except GraphBreak as shown:  # PyTorch does not bear an error here
                print(f"GraphBreak: {shown}", file=sys.stderr)


def _tried() -> Any:
    """The backend that PyTorch compiles for now."""
    from torch._dynamo.eval_frame import innermost_backend

    frame = inspect.currentframe()
    while frame is not None:
        found = frame.f_locals.get("compiler_fn")
        if callable(found):
            found = innermost_backend(found)
            return getattr(found, "compiler_fn", found)
        frame = frame.f_back
    return None


def _show(stack: Sequence[Any], what: str, reason: str) -> None:
    frame = stack[-1] if stack else None
    path, line = (frame.filename, frame.lineno or 0) if frame is not None else ("<unknown>", 0)
    name = re.sub(r"^torch_dynamo_resume_in_(\w+)_at_\d+$", r"\1", frame.name) if frame is not None else "a function"
    why, fix = _cause(reason)
    text = "\n".join([what.format(name), f"  why: {why}", f"  fix: {f'{fix}; ' if fix else ''}{HINT}"])
    warnings.warn_explicit(text, GraphBreak, path, line, registry=SHOWN)


def _cause(reason: str) -> tuple[str, str]:
    """Why, and what to do, as PyTorch says."""
    if reason.startswith("generic_jump"):
        return "Python branches on elements of a tensor", "choose between results with torch.where"
    explained = re.search(r"^\s*Explanation: (.+)$", reason, re.MULTILINE)
    hint = re.search(r"^\s*Hint: (.+)$", reason, re.MULTILINE)
    first = reason.strip().partition("\n")[0]
    return (explained[1] if explained else first).rstrip("."), hint[1].rstrip(".") if hint else ""
