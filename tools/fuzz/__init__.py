"""Random programs against the compiler: `python -m headrace.tools.fuzz`.

    program = random_program(7)                     # a module, arrays for its inputs, and its weights
    results = run_function(program.module, "main", program.inputs, program.store)

A program is a pure function of its seed and has any of the tensor ops and element types, states, shared functions,
derived weights, dead code, empty dims, infinities and NaNs. There is no op for branches or loops in the dialect, so
calls are all the control flow there is. Ops are evaluated as they are added, so that any right implementation agrees
to rounding (`nearby`). `check` runs programs through the compiler and compares every level.
"""

from __future__ import annotations

from headrace.tools.fuzz.generator import DEFAULT, Distribution, random_program
from headrace.tools.fuzz.maker import Program
from headrace.tools.fuzz.nearby import TOLERANCE, disagreement

__all__ = ["DEFAULT", "TOLERANCE", "Distribution", "Program", "disagreement", "random_program"]
