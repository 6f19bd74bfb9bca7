"""Pipelines and phases as data.

A pipeline is a text that `headrace-opt -p` takes. A phase is a pipeline with a name and a rule of what it takes and
gives: `--to=PHASE` stops after it, `--from=PHASE` goes on from there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr
from xdsl.ir import Operation

from headrace.dialects.support.diagnostics import CompileError, nearest
from headrace.passes.infra.legality import Legality, legal
from headrace.passes.infra.manager import HISTORY_ATTRIBUTE, Stage
from headrace.passes.infra.registry import build

TENSOR = (
    "canonicalize",  # movement chains in normal form before patterns look at them
    "cse",
    "fold-constants",  # so that fuse sees constants that the exporter computed
    "fuse",  # exporters spell gelu, norms and silu in primitives; a unit runs them whole
    "simplify-views",
    "fold-batch-norm",  # before decompose takes the norm apart
    "decompose",  # what is left and no unit runs whole
    "expose-padding",  # so that windows can be cut, and padding becomes part of a buffer
    "linearize-scatters",  # before folding, which turns its index arithmetic into constants where it can
    "fold-constants",  # transposed weights and the like become derived keys
    "canonicalize",  # folding leaves moves of moves
    "cse",
    "dce",
    "outline-repeated-layers",  # before any mapping, so that a layer is mapped once
    "order-ops",  # sections are runs of ops
)
DATAFLOW = (
    "convert-tensor-to-dataflow",
    "fuse-stages",
    "narrow-joins",
    "choose-layouts",  # before tiling: address programs do not change with tiles
    "tile",
    "cut-sections",  # after tiling, so that buffers are counted as they will be
    "parallelize",
    "size-buffers",
    "bank-memories",
    "check-deadlock",
)
RDU = (
    "convert-dataflow-to-rdu",
    "split-to-units",
    "allocate-memory",
    "loop-launches",  # of launches whose regions now lie at equal distance
    "place",
    "route",
    "check-resources",
)


@dataclass(frozen=True)
class Phase:
    """A part of the compiler that leaves IR at which one may stop, and from which one may go on."""

    name: str
    passes: tuple[str, ...]
    takes: Legality
    gives: Legality

    @property
    def text(self) -> str:
        """The passes as a pipeline."""
        return ",".join(self.passes)


def _unbanked(op: Operation) -> str:
    units = op.properties.get("units")
    decided = op.name != "dataflow.buffer" or (isinstance(units, IntegerAttr) and units.value.data > 0)
    return "" if decided else "is not spread over memory units yet"


def _unrouted(op: Operation) -> str:
    phase = op.properties.get("phase")
    done = op.name != "rdu.config" or (isinstance(phase, StringAttr) and phase.data == "routed")
    return "" if done else "is not routed yet"


_MOVEMENT = tuple(f"tensor.{name}" for name in ("reshape", "transpose", "slice", "broadcast", "concat", "split", "pad"))
TENSORS = legal("builtin", "func", "tensor")
"""Functions of tensor ops."""
SECTIONS = legal(
    *("builtin", "func", "tensor", "dataflow"),
    inside={"func.func": legal("func.return", "func.call", "dataflow.section", "tensor.weight", *_MOVEMENT)},
    fault=_unbanked,
)
"""Functions of sections, with nothing between them but weights, calls and views."""
UNITS = legal(
    *("builtin.module", "tensor", "rdu"),
    inside={"builtin.module": legal("rdu.config", "rdu.program", "tensor.recipe")},
    fault=_unrouted,
)
"""Routed configs and the program that launches them."""

START = "import"
"""The name of what a frontend gives, before any phase."""
PHASES: dict[str, Phase] = {
    phase.name: phase
    for phase in (
        Phase("tensor", TENSOR, TENSORS, TENSORS),
        Phase("dataflow", DATAFLOW, TENSORS, SECTIONS),
        Phase("rdu", RDU, SECTIONS, UNITS),
    )
}
NAMES = (START, *PHASES)
"""Where one may stop and go on, in order."""
PIPELINES: dict[str, str] = {
    **{name: phase.text for name, phase in PHASES.items()},
    "default": ",".join(PHASES),
}
"""Named pipelines: the three phases, and `default`, all of them."""

PRECISIONS = {
    "fp32": "as the model says",
    "bf16": "f32 becomes bf16; sums, norms and softmax inside an op stay f32",
}
"""Element type of the arithmetic."""
LOWER = "lower-precision"
NATIVE = "check-native-types"
PARTITION = "partition"
EXTRA = {"tensor": (LOWER, NATIVE, PARTITION)}
"""Passes that a phase has when options ask for them."""

MODES = {
    "O0": "each op is a section of its own, launched by the host: to look at ops one by one",
    "O1": "ops that a fusion rule joins share a section",
    "O3": "sections are cut where the modelled time is least",
}
"""How much of a model is resident on the chip at a time."""


def tensor(
    precision: str = "fp32", ports: str = "states", weights: str = "", native_types: bool = False, mesh: str = ""
) -> tuple[str, ...]:
    """The passes of phase tensor for a precision; `ports` says which of the program's ports become narrow, too, and
    `weights` what weights are stored in when that is narrower still. `native_types` checks at the end that the device
    has the types. `mesh` says for which sockets the program is ("dp=2,tp=4"), when it is for several."""
    if precision not in PRECISIONS:
        raise CompileError("bad-option", f"there is no precision '{precision}'", fix=nearest(precision, PRECISIONS))
    divided = (f'{PARTITION}{{mesh="{mesh}"}}',) if mesh else ()  # behind outlining: a layer is partitioned once
    checks = (*divided, *((NATIVE,) if native_types else ()))
    if precision == "fp32":
        return (*TENSOR, *checks)
    options = [f"ports={ports}"] * (ports != "states") + [f"weights={weights}"] * bool(weights)
    lower = LOWER + (f"{{{' '.join(options)}}}" if options else "")
    at = TENSOR.index("decompose")  # composites are whole and compute in f32; batch norm is folded in f32
    return (*TENSOR[:at], lower, *TENSOR[at:], *checks)


def mesh_text(mesh: Mapping[str, int]) -> str:
    """A mesh as the pass takes it; `CompileError` for one that cannot be."""
    from headrace.passes.analysis.sharding import mesh_from_text  # not loaded for a program of one socket

    text = ",".join(f"{name}={size}" for name, size in mesh.items())
    if text:
        mesh_from_text(text)
    return text


CHOOSE, STREAM = "choose-runs", "stream-runs"
GOALS = {
    "latency": "the time of one run is least",
    "throughput": "the time from result to result is least when inputs come one after the other",
}
"""What the searches of the mapping make least."""


def dataflow(mode: str = "O3", rules: str = "", goal: str = "latency", runs: int = 0) -> tuple[str, ...]:
    """The passes of phase dataflow in a mode; `rules` is a file of fusion rules for O1. For throughput `runs` follow
    each other through each section (0: chosen). `CompileError` for another mode."""
    found = _dataflow(mode, rules)
    if goal == "latency":
        return found
    at = found.index("tile")  # which makes larger tiles where runs follow each other
    return (*found[:at], CHOOSE + f"{{runs={runs}}}" * bool(runs), *found[at:])


def _dataflow(mode: str, rules: str) -> tuple[str, ...]:
    if mode not in MODES:
        raise CompileError("bad-option", f"there is no mode '{mode}'", fix=nearest(mode, MODES))
    if rules and mode != "O1":
        raise CompileError("bad-option", f"fusion rules are given with {mode}", fix="-O 1 takes them")
    if mode == "O3":
        return DATAFLOW
    if mode == "O0":
        options = {"convert-tensor-to-dataflow": "transposes=stages", "cut-sections": "by=op"}
    else:
        options = {"cut-sections": "by=rule" + (f' rules="{rules}"' if rules else "")}
    passes = (x for x in DATAFLOW if mode != "O0" or x != "fuse-stages")
    return tuple(f"{x}{{{options[x]}}}" if x in options else x for x in passes)


def rdu(mode: str = "O3", goal: str = "latency") -> tuple[str, ...]:
    """The passes of phase rdu in a mode: in O0 the host launches each section. For throughput launches have several
    runs."""
    by_host = "convert-dataflow-to-rdu{launch=host}"
    found = tuple(by_host if mode == "O0" and x == "convert-dataflow-to-rdu" else x for x in RDU)
    if goal == "latency":
        return found
    at = found.index("allocate-memory")
    return (*found[:at], STREAM, *found[at:])


MODEL_ATTRIBUTE = "headrace.model"
"""Name of the module attribute that holds the name of the model."""


def stages(
    start: str = START,
    stop: str = NAMES[-1],
    mode: str = "O3",
    rules: str = "",
    precision: str = "fp32",
    ports: str = "states",
    weights: str = "",
    native_types: bool = False,
    mesh: str = "",
    goal: str = "latency",
    runs: int = 0,
) -> tuple[Stage, ...]:
    """The phases that lead from what `start` leaves to what `stop` leaves, ready to run, in a mode (`MODES`) with a
    file of fusion rules, at a precision (`PRECISIONS`), in types that the device has if `native_types`, for a `mesh` of
    sockets and a goal (`GOALS`) with so many runs at a time. `CompileError` for an unknown name, or when `stop` comes
    before `start`."""
    texts = {
        "tensor": ",".join(tensor(precision, ports, weights, native_types, mesh)),
        "dataflow": ",".join(dataflow(mode, rules, goal, runs)),
    }
    texts["rdu"] = ",".join(rdu(mode, goal))
    for flag, name in (("--from", start), ("--to", stop)):
        if name not in NAMES:
            raise CompileError("unknown-phase", f"{flag}={name}: there is no such phase", fix=nearest(name, NAMES))
    first, last = NAMES.index(start), NAMES.index(stop)
    if last < first:
        raise CompileError(
            "bad-option", f"--to={stop} comes before --from={start}", why=f"the order is {', '.join(NAMES)}"
        )
    return tuple(
        Stage(phase.name, build(texts.get(phase.name, phase.text)), phase.takes, phase.gives, _advice)
        for phase in list(PHASES.values())[first:last]
    )


def check_from(module: ModuleOp, start: str) -> None:
    """Refuse a module that is not what phase `start` leaves, with every op that should not be there."""
    rule = PHASES[start].gives if start in PHASES else PHASES["tensor"].takes
    rule.check(module, f"after phase {start}" if start in PHASES else "before any phase", _advice(module))


def reached(module: ModuleOp) -> str:
    """The phase after which a module stands: by the passes that it says it has been through, else by its ops. Empty for
    one in the middle of a phase."""
    history = module.attributes.get(HISTORY_ATTRIBUTE)
    if isinstance(history, StringAttr):
        ran = re.sub(r"\{[^}]*\}", "", history.data)  # modes and precisions differ in options
        ran = ",".join(x for x in ran.split(",") if x not in (NATIVE, PARTITION, CHOOSE, STREAM))
        for mode, precision in product(MODES, PRECISIONS):
            done = ""
            passes = {START: (), "tensor": tensor(precision), "dataflow": dataflow(mode), "rdu": RDU}
            for name in NAMES:
                done = ",".join(filter(None, [done, *(x.partition("{")[0] for x in passes[name])]))
                if done == ran:
                    return name
    for name in reversed(PHASES):
        if name != "tensor" and any(op.name.startswith(f"{name}.") for op in module.walk()):
            return name if PHASES[name].gives.accepts(module) else ""
    return START if TENSORS.accepts(module) else ""


def _advice(module: ModuleOp) -> str:
    """What to do with a module that is not where it was said to be."""
    at = reached(module)
    if not at:
        return "it is in the middle of a phase: run its other passes (headrace-opt -p, headrace compile --passes)"
    following = NAMES[NAMES.index(at) + 1 :]
    return f"run phase {following[0]} first: --from={at}" if following else f"it is through all phases: --from={at}"
