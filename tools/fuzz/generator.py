"""`random_program(seed)`: a valid tensor program as a pure function of its arguments."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Region, SSAValue

from headrace.dialects.support.dtypes import FLOATS, STORED
from headrace.dialects.support.locations import named
from headrace.dialects.tensor.program import set_signature
from headrace.tools.fuzz.maker import DTYPES, INTS, SIZES, Maker, Program, erase_dead
from headrace.tools.fuzz.nearby import Declined, Nearby
from headrace.tools.fuzz.steps.models import take_steps


@dataclass(frozen=True)
class Distribution:
    """What programs look like."""

    ops: int = 8
    """About how many steps a program has; a step is one to twenty ops."""
    dtypes: tuple[str, ...] = DTYPES
    size: str = "small"
    """A key of `SIZES`."""
    kinds: tuple[str, ...] = ()
    """Kinds of steps (keys of `steps()`); all when empty."""
    dead: bool | None = None
    """Whether ops that no result needs stay; in some programs when None."""
    plain: bool = False
    """Only what every program has: no infinities and NaNs, no empty dims, no states."""
    rounds: str = ""
    """An element type that f32 may be rounded to without the program becoming another."""


DEFAULT = Distribution()


def random_program(seed: int, like: Distribution = DEFAULT) -> Program:
    """The program of a seed."""
    rng = random.Random(f"{seed}")
    dtype = _main_type(rng, like.dtypes)
    size = SIZES[like.size]
    empty, wild = (not like.plain and rng.random() < p for p in (0.06, 0.08))
    m = Maker(rng, dtype, like.dtypes, size, empty, Nearby(rng.getrandbits(32), wild, size.most, like.rounds))
    for i in range(rng.choice((1, 1, 2, 3))):
        m.scope.values.append(
            m.argument(m.sample(m.new_shape(), dtype if i == 0 else rng.choice((dtype, *like.dtypes))))
        )
    take_steps(m, like.ops, like.kinds)
    return _finish(m, rng.random() < 0.3 if like.dead is None else like.dead, like.plain)


def _main_type(rng: random.Random, dtypes: Sequence[str]) -> str:
    """Mostly f32."""
    often = {"f32": 12, **{dtype: 2 for dtype in FLOATS if dtype != "f32"}}
    usable = [dtype for dtype in dtypes if dtype not in ("i1", *STORED)] or list(dtypes)
    return rng.choices(usable, [often.get(dtype, 4 / len(INTS)) for dtype in usable])[0]


def _finish(m: Maker, dead: bool, plain: bool) -> Program:
    """Return what nothing uses (at most four values), now and then a value that is used, one twice, or an argument;
    make some arguments states; drop what that leaves dead."""
    rng, block = m.random, m.scope.block
    values = m.scope.values
    free = [x for x in values if x.first_use is None] or values[-1:]
    results = free[-4:]
    for among, chance in ((values, 0.3), (results, 0.2), (list(block.args), 0.2)):
        if rng.random() < chance:
            results = [*results, rng.choice(among)]
    last = ReturnOp(*results)
    last.location = named("return")
    block.add_op(last)
    states = [] if plain else _states(m, results)
    if not dead:
        erase_dead(block)
    func = FuncOp("main", ([x.type for x in block.args], [x.type for x in results]), Region(block))
    func.location = named("main")
    inputs = {f"x{i}": m.array(x) for i, x in enumerate(block.args)}
    names = [f"y{i}" for i in range(len(results))]
    set_signature(func, list(inputs), names, [(f"x{a}", names[b]) for a, b in states])
    ops = [*m.module, func]
    if rng.random() < 0.5:
        ops.reverse()
    return Program(ModuleOp(ops), inputs, m.store)


def _states(m: Maker, results: list[SSAValue]) -> list[tuple[int, int]]:
    """Arguments that results replace in the next run, as pairs of positions; adds results for them. None when the next
    run depends on roundings."""
    rng, block = m.random, m.scope.block
    if rng.random() < 0.6:
        return []
    last = block.last_op
    assert isinstance(last, ReturnOp)
    kept, pairs = list(results), list[tuple[int, int]]()
    for argument in block.args:
        if rng.random() < 0.5:
            continue
        same = [x for x in (*m.scope.values, *block.args) if x.type == argument.type]
        changed = [x for x in same if x is not argument]
        pairs.append((argument.index, len(results)))
        results.append(rng.choice(changed if changed and rng.random() < 0.9 else same))
    last.operands = results
    now = [m.known[x] for x in block.args]
    replaced = {a: m.known[results[b]] for a, b in pairs}
    try:
        m.replay(block, [replaced.get(i, value) for i, value in enumerate(now)])
    except (Declined, IndexError):  # an index that the state holds may lie outside
        results[:] = kept
        last.operands = results
        return []
    return pairs
