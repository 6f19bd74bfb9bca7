"""The dataflow level: sections of stages joined by streams of tiles; says what happens in which stream, not where."""

from xdsl.ir import Dialect

from headrace.dialects.dataflow.ops import OPS
from headrace.dialects.dataflow.types import StreamType, ViewAttr

Dataflow = Dialect("dataflow", list(OPS), [StreamType, ViewAttr])
