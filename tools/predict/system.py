"""A system: sockets of one device, numbered over the axes of a mesh."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from headrace.dialects.machine.device import Device, load_device
from headrace.dialects.support.diagnostics import CompileError


class System:
    """`sockets` devices that work on one program. `mesh` says by which axes, major first (`{"dp": 2, "tp": 8}`);
    tensor parallel alone unless it is given. `device` is a name, a file or a `Device`; `changed` are entries of it that
    differ from the file's, `{"launch.hardware": 1e-6}`, for studies of one number. With `retimed` programs are compiled
    as for the file's device, and only timed on the changed one."""

    def __init__(
        self,
        device: str | Path | Device = "sn40l",
        sockets: int = 0,
        mesh: Mapping[str, int] | None = None,
        changed: Mapping[str, Any] | None = None,
        retimed: bool = False,
    ) -> None:
        count = prod(mesh.values()) if mesh else sockets or 1
        if mesh and sockets and count != sockets:
            raise CompileError(
                "bad-option",
                f"the mesh {dict(mesh)} has {count} sockets, not {sockets}",
                fix="give one of mesh and sockets",
            )
        if count < 1:
            raise CompileError("bad-option", f"{count} sockets: a system has at least 1")
        self.device = device if isinstance(device, Device) else load_device(device)
        self.compiled_for = self.device
        self.changed = dict(changed or {})
        if self.changed:
            self.device = with_changes(self.device, self.changed)
            self.compiled_for = self.compiled_for if retimed else self.device
        self.sockets = count
        self.mesh: tuple[tuple[str, int], ...] = tuple(mesh.items()) if mesh else (("tp", count),)
        self.mesh = tuple((axis, size) for axis, size in self.mesh if size > 1)

    @property
    def name(self) -> str:
        """Short, for tables: `16 x sn40l (tp=16)`."""
        changes = "".join(f", {key} = {value:g}" for key, value in self.changed.items())
        return f"{self.sockets} x {self.device.name}" + (f" ({self.axes})" if self.mesh else "") + changes

    @property
    def _key(self) -> tuple[Any, ...]:
        return self.device, self.compiled_for, self.mesh

    @property
    def axes(self) -> str:
        """The mesh as the compiler takes it: `dp=2,tp=8`."""
        return ",".join(f"{axis}={size}" for axis, size in self.mesh)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, System) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"<System: {self.name}>"


def with_changes(device: Device, changed: Mapping[str, Any]) -> Device:
    """A device with other values of entries, by dotted path. `CompileError` for an entry that it does not have."""
    for path, value in changed.items():
        try:
            device = device.with_values(**{path.replace(".", "__"): value})
        except (AttributeError, TypeError):
            what = f"'{device.name}' has no entry '{path}'"
            raise CompileError("bad-option", what, fix=f"headrace devices {device.name} lists them") from None
    return device


__all__ = ["System", "with_changes"]
