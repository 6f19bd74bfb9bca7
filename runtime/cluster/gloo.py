"""The sockets of a mesh as processes of torch.distributed, by its gloo backend.

    torchrun --nproc-per-node 4 run.py    # with exe = headrace.load("m.sn", ranks="gloo"); out = exe({"x": x})

Each process runs one socket and gets all results, to the bit those of one process: an array is carried as bytes, and
every socket combines what it gets in the order of the sockets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np

from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.meaning.collective import Array, Socket
from headrace.dialects.tensor.shapes.collective import COMMUNICATING, group_of
from headrace.runtime.program import Pcu, Program


class Gloo:
    """Carries arrays between processes."""

    def __init__(self, groups: Iterable[tuple[int, ...]]) -> None:
        """`groups` are all that may meet, in the same order in every process."""
        from torch import distributed

        dist: Any = distributed
        self._groups = {members: dist.new_group(list(members), backend="gloo") for members in groups}

    def exchange(self, socket: int, members: tuple[int, ...], array: Array) -> Sequence[Array]:
        """See `Transport`."""
        import torch as library
        from torch import distributed

        torch, dist = cast("Any", library), cast("Any", distributed)
        given = torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy())
        got = [torch.empty_like(given) for _ in members]
        dist.all_gather(got, given, group=self._groups[members])
        return [x.numpy().view(array.dtype).reshape(array.shape) for x in got]


def this_socket(program: Program) -> Socket:
    """The socket that this process is, by its rank. `CompileError` without torch, or with another number of processes
    than the program has sockets."""
    try:
        import torch.distributed as dist
    except ImportError:
        raise CompileError(
            "missing-extra", "sockets as processes need torch.distributed", fix="pip install 'headrace[torch]'"
        ) from None
    if not dist.is_initialized():
        try:
            dist.init_process_group("gloo")
        except (ValueError, RuntimeError) as error:
            raise CompileError(
                "no-ranks", f"there is no group of processes: {error}", fix="start the processes with torchrun"
            ) from None
    if dist.get_world_size() != program.sockets:
        raise CompileError(
            "no-ranks",
            f"{dist.get_world_size()} processes run a program of {program.sockets} sockets",
            fix=f"torchrun --nproc-per-node {program.sockets}",
        )
    return Socket(dist.get_rank(), Gloo(meetings(program)))


def meetings(program: Program) -> list[tuple[int, ...]]:
    """The sockets that meet at a collective of the program, and all of them, who join results."""
    found = {tuple(range(program.sockets))}
    for config in program.configs:
        for unit in config.units:
            for op in unit.ops if isinstance(unit, Pcu) else ():
                if op.name in COMMUNICATING:
                    group = group_of(op.attrs)
                    found |= {group.members(socket) for socket in range(program.sockets)}
    return sorted(found)
