"""The rdu level: units, flows and launches, in three phases (virtual, placed, routed); what the artifact encodes.

`Rdu`, the dialect, loads the op classes on first use, so that `headrace.dialects.rdu.cost` can be used without the IR.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdsl.ir import Dialect

    Rdu: Dialect

__all__ = ["Rdu"]


@cache
def _dialect() -> Dialect:
    from xdsl.ir import Dialect

    from headrace.dialects.rdu.attributes import ATTRIBUTES
    from headrace.dialects.rdu.ops import OPS

    return Dialect("rdu", list(OPS), list(ATTRIBUTES))


def __getattr__(name: str) -> Any:
    if name == "Rdu":
        return _dialect()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
