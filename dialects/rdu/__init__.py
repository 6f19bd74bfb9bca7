"""The rdu level: units, flows and launches, in three phases (virtual, placed, routed); what the artifact encodes."""

from xdsl.ir import Dialect

from headrace.dialects.rdu.attributes import ParamAttr, StreamAttr, ViewAttr
from headrace.dialects.rdu.ops import OPS

Rdu = Dialect("rdu", list(OPS), [ParamAttr, StreamAttr, ViewAttr])
