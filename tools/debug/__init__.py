"""When a pass is wrong: a failure as one file, the rewrite that makes it, the smallest program that has it.

found = bisect(module, build("default"), Predicate("failure"))       # pass, rewrite, difference
small = reduce(found.before, found.trial)                            # or any function of a module
write(found.trial, small, Source("model.mlir", …), "small.mlir")
"""

from headrace.tools.debug.bisection import Bisection, bisect
from headrace.tools.debug.failures import Failure, Predicate, Trial
from headrace.tools.debug.numbers import Numbers
from headrace.tools.debug.reduction import count, reduce, reduce_failure
from headrace.tools.debug.reproducer import Source, absolute, reproduce, said, write

__all__ = [
    "Bisection",
    "Failure",
    "Numbers",
    "Predicate",
    "Source",
    "Trial",
    "absolute",
    "bisect",
    "count",
    "reduce",
    "reduce_failure",
    "reproduce",
    "said",
    "write",
]
