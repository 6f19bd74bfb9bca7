"""Ops of the rdu level: configs of units and flows, and the program that launches them."""

from __future__ import annotations

from headrace.dialects.rdu import config, program, units
from headrace.dialects.rdu.config import PHASES, ConfigOp, FlowOp
from headrace.dialects.rdu.program import LaunchOp, LoopOp, PortOp, ProgramOp, RegionOp
from headrace.dialects.rdu.syntax import coordinates
from headrace.dialects.rdu.units import AgcuOp, PcuOp, PmuOp, UnitOp, YieldOp

OPS = [*program.OPS, *config.OPS, *units.OPS]

__all__ = [
    "OPS",
    "PHASES",
    "AgcuOp",
    "ConfigOp",
    "FlowOp",
    "LaunchOp",
    "LoopOp",
    "PcuOp",
    "PmuOp",
    "PortOp",
    "ProgramOp",
    "RegionOp",
    "UnitOp",
    "YieldOp",
    "coordinates",
]
