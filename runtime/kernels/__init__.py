"""NumPy calls bound once: `bind` for one op, `bind_chain` for a run of ops that goes through cache-sized chunks.

A step is a pair (f, args), run as f(*args). Steps write into arrays given at bind time or into scratch and allocate no
array; those that run an op through its meaning do, and `allocating` names them. Exponentials may overflow to infinity
on purpose: run steps under `np.errstate(all="ignore")`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from headrace.runtime.kernels.blas import Packs
from headrace.runtime.kernels.calls import Call, Fallback, Step, allocating, bind_call
from headrace.runtime.kernels.chain import bind_chain
from headrace.runtime.kernels.scratch import Array, Scratch

__all__ = ["Array", "Fallback", "Packs", "Scratch", "Step", "allocating", "bind", "bind_chain"]


def bind(
    name: str,
    attrs: Mapping[str, Any],
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    scratch: Scratch,
    constants: Collection[int] = (),
    packs: Packs | None = None,
) -> list[Step]:
    """Steps of one op from arrays to arrays; `constants` are the positions of inputs that never change after this call.

    An output may be the same view as input 0 of an elementwise, softmax or norm op. Scratch is free again on return.
    """
    mark = scratch.mark()
    steps = bind_call(Call(name, attrs, inputs, outputs, scratch, constants, packs))
    scratch.release(mark)
    return steps
