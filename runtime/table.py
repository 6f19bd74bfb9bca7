"""The program table: a `Program` as bytes and back. Deterministic, versioned, and nothing in it can run.

A table is two arrays: bytes (a string pool, then records of variable-length integers) and 32-bit integers (sites,
pairs and routes, which records name by start and count). Reading checks every count and index against what is left.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from headrace.dialects.support import dtypes
from headrace.dialects.support.access import Loop, Stream, View
from headrace.dialects.tensor.shapes import TT
from headrace.runtime.program import (
    Agcu,
    BodyOp,
    Config,
    Flow,
    Launch,
    LaunchLoop,
    Param,
    Pcu,
    Pmu,
    Port,
    Program,
    Region,
    Unit,
)

SCHEMA = 4
"""Version of the table's layout; it changes whenever older readers would misread a table."""
MAGIC = b"HRTB"
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Ints = np.ndarray[Any, np.dtype[np.int32]]
T = TypeVar("T")
DTYPES = tuple(dtypes.BITS)
NONE, FALSE, TRUE, INT, FLOAT, STR, BYTES, TUPLE, DICT, ARRAY = range(10)


class BadTable(Exception):
    """The bytes are not a program table; the text says what is wrong."""


# Writing


class _Writer:
    def __init__(self) -> None:
        self.out = bytearray()
        self.strings: dict[str, int] = {}
        self.ints: list[Ints] = []
        self.count = 0
        self.known: dict[bytes, int] = {}

    def number(self, value: int) -> None:
        """A signed integer: 7 bits a byte, sign in the lowest bit."""
        value = value << 1 if value >= 0 else (-value << 1) - 1
        while value > 127:
            self.out.append(value & 127 | 128)
            value >>= 7
        self.out.append(value)

    def numbers(self, values: Sequence[int]) -> None:
        self.number(len(values))
        for value in values:
            self.number(value)

    def string(self, text: str) -> None:
        self.number(self.strings.setdefault(text, len(self.strings)))

    def blob(self, data: bytes) -> None:
        self.number(len(data))
        self.out += data

    def real(self, value: float) -> None:
        self.out += struct.pack("<d", value)

    def table(self, values: Any) -> None:
        """An array of 32-bit integers in the second array; equal ones are written once."""
        array = np.ascontiguousarray(values, np.int32).ravel()
        data = array.tobytes()
        at = self.known.get(data)
        if at is None:
            at = self.known[data] = self.count
            self.ints.append(array)
            self.count += len(array)
        self.number(at)
        self.number(len(array))

    def value(self, value: Any) -> None:
        """A plain value with its kind."""
        match value:
            case None:
                self.number(NONE)
            case bool():
                self.number(TRUE if value else FALSE)
            case int():
                self.number(INT)
                self.number(value)
            case float():
                self.number(FLOAT)
                self.real(value)
            case str():
                self.number(STR)
                self.string(value)
            case bytes():
                self.number(BYTES)
                self.blob(value)
            case tuple() | list():
                items = cast("Sequence[Any]", value)
                self.number(TUPLE)
                self.number(len(items))
                for item in items:
                    self.value(item)
            case Mapping():
                found = cast("Mapping[str, Any]", value)
                self.number(DICT)
                self.number(len(found))
                for key in sorted(found):
                    self.string(key)
                    self.value(found[key])
            case np.ndarray():
                array = cast("np.ndarray[Any, Any]", value)
                self.number(ARRAY)
                self.type(TT(tuple(array.shape), dtypes.from_numpy(array.dtype)))
                one = array.size > 1 and not any(
                    step for n, step in zip(array.shape, array.strides, strict=True) if n > 1
                )
                self.blob(np.ascontiguousarray(array[(slice(0, 1),) * array.ndim] if one else array).tobytes())
            case np.generic():
                self.value(cast("np.generic[Any]", value).item())
            case _:
                raise TypeError(f"a program cannot hold {type(value).__name__} {value!r}")

    def type(self, type: TT) -> None:
        self.number(DTYPES.index(type.dtype))
        self.numbers(type.shape)

    def view(self, view: View | None) -> None:
        if view is None:
            self.number(0)
        else:
            self.number(1)
            self.number(view.offset)
            self.numbers(view.strides)

    def loops(self, loops: Sequence[Loop]) -> None:
        self.number(len(loops))
        for loop in loops:
            for value in (loop.count, loop.dim, loop.step):
                self.number(value)

    def unit(self, unit: Unit) -> None:
        self.number(("pcu", "pmu", "agcu").index(unit.kind))
        self.string(unit.name)
        self.string(unit.location)
        self.table(unit.sites)
        match unit:
            case Pcu():
                self.string(unit.mode)
                self.number(unit.stages)
                self.number(unit.inputs)
                self.numbers(unit.outputs)
                self.number(len(unit.types))
                for type in unit.types:
                    self.type(type)
                self.number(len(unit.ops))
                for op in unit.ops:
                    self.string(op.name)
                    self.string(op.location)
                    self.numbers(op.operands)
                    self.numbers(op.results)
                    self.value(op.attrs)
            case Pmu():
                self.type(TT(unit.shape, unit.dtype))
                for value in (unit.frames, unit.copies, unit.split_dim, unit.banks, int(unit.kept)):
                    self.number(value)
                self.real(unit.fill)
            case Agcu():
                self.string(unit.direction)
                self.number(unit.param)

    def flow(self, flow: Flow) -> None:
        for value in (flow.src, flow.src_port, flow.dst, flow.dst_port, flow.credits):
            self.number(value)
        self.type(TT(flow.stream.tile, flow.stream.dtype))
        self.loops(flow.stream.time)
        self.loops(flow.stream.space)
        self.view(flow.src_view)
        self.view(flow.dst_view)
        self.table(flow.pairs)
        self.table(flow.starts)
        self.table(flow.links)

    def config(self, config: Config) -> None:
        self.string(config.name)
        self.number(len(config.params))
        for param in config.params:
            self.string(param.name)
            self.type(param.type)
            self.string(param.direction)
        self.number(len(config.units))
        for unit in config.units:
            self.unit(unit)
        self.number(len(config.flows))
        for flow in config.flows:
            self.flow(flow)

    def port(self, port: Port) -> None:
        self.string(port.name)
        self.type(port.type)
        self.number(port.region)
        self.number(port.offset)

    def program(self, program: Program) -> None:
        self.value(program.device)
        self.number(len(program.regions))
        for region in program.regions:
            for text in (region.name, region.kind, region.memory, region.key):
                self.string(text)
            self.type(region.type)
            self.number(region.address)
            self.number(region.runs)
        self.number(len(program.configs))
        for config in program.configs:
            self.config(config)
        self.number(len(program.launches))
        for launch in program.launches:
            self.number(launch.config)
            self.number(launch.runs)
            self.string(launch.mode)
            self.string(launch.location)
            self.number(len(launch.args))
            for region_number, offset in launch.args:
                self.number(region_number)
                self.number(offset)
        self.number(len(program.loops))
        for loop in program.loops:
            for value in (loop.first, loop.period, loop.times):
                self.number(value)
        for ports in (program.inputs, program.outputs):
            self.number(len(ports))
            for port in ports:
                self.port(port)
        self.number(len(program.states))
        for past, present in program.states:
            self.string(past)
            self.string(present)
        self.value(program.meta)
        self.number(len(program.mesh))
        for axis, size in program.mesh.items():
            self.string(axis)
            self.number(size)
        self.value(program.shardings)
        self.value(program.stacks)


def encode(program: Program) -> tuple[Bytes, Ints]:
    """The two arrays of the table; the same program always gives the same bytes. The first is padded to 64 bytes."""
    writer = _Writer()
    writer.program(program)
    body = bytes(writer.out)
    writer.out = bytearray()
    writer.number(len(writer.strings))
    for text in writer.strings:
        writer.blob(text.encode())
    data = MAGIC + struct.pack("<IQ", SCHEMA, len(body)) + bytes(writer.out) + body
    data += b"\0" * (-len(data) % 64)
    ints = np.concatenate([np.zeros(0, np.int32), *writer.ints])
    ints = np.concatenate([ints, np.zeros(-len(ints) % 16, np.int32)])
    return np.frombuffer(data, np.uint8), ints


# Reading


class _Reader:
    def __init__(self, data: bytes, ints: Ints) -> None:
        self.data = data
        self.ints = ints
        self.at = 0
        self.strings: list[str] = []

    def number(self) -> int:
        data, at = self.data, self.at
        byte = data[at]
        at += 1
        value = byte & 127
        shift = 7
        while byte > 127:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if shift > 126:
                raise BadTable("an integer is too long")
        self.at = at
        return -((value + 1) >> 1) if value & 1 else value >> 1

    def length(self, least: int = 1) -> int:
        """A count of records that take at least `least` bytes each."""
        count = self.number()
        if not 0 <= count * least <= len(self.data) - self.at:
            raise BadTable(f"a count of {count} records is more than the table holds")
        return count

    def many(self, read: Callable[[], T], least: int = 1) -> tuple[T, ...]:
        return tuple([read() for _ in range(self.length(least))])

    def numbers(self) -> tuple[int, ...]:
        return self.many(self.number)

    def string(self) -> str:
        index = self.number()
        if not 0 <= index < len(self.strings):
            raise BadTable(f"string {index} of {len(self.strings)}")
        return self.strings[index]

    def blob(self) -> bytes:
        count = self.length()
        self.at += count
        return self.data[self.at - count : self.at]

    def real(self) -> float:
        (value,) = struct.unpack_from("<d", self.data, self.at)
        self.at += 8
        return value

    def table(self) -> Ints:
        at, count = self.number(), self.number()
        if at < 0 or count < 0 or at + count > len(self.ints):
            raise BadTable(f"integers {at} to {at + count} of {len(self.ints)}")
        return self.ints[at : at + count]

    def pairs(self) -> Ints:
        found = self.table()
        if len(found) % 2:
            raise BadTable("a table of pairs has an odd length")
        return found.reshape(-1, 2)

    def value(self, depth: int = 0) -> Any:
        if depth > 32:
            raise BadTable("values are nested too deep")
        kind = self.number()
        match kind:
            case 0:
                return None
            case 1 | 2:
                return kind == TRUE
            case 3:
                return self.number()
            case 4:
                return self.real()
            case 5:
                return self.string()
            case 6:
                return self.blob()
            case 7:
                return self.many(lambda: self.value(depth + 1))
            case 8:
                return dict(self.many(lambda: (self.string(), self.value(depth + 1)), 2))
            case 9:
                type, data = self.type(), self.blob()
                size = dtypes.byte_size(type.dtype)
                if len(data) == size and type.elements > 1:  # all elements are equal
                    return np.broadcast_to(np.frombuffer(data, dtypes.to_numpy(type.dtype)), type.shape)
                if len(data) != type.elements * size:
                    raise BadTable(f"{len(data)} bytes for {type}")
                return np.frombuffer(data, dtypes.to_numpy(type.dtype)).reshape(type.shape)
            case _:
                raise BadTable(f"unknown kind of value {kind}")

    def type(self) -> TT:
        index = self.number()
        if not 0 <= index < len(DTYPES):
            raise BadTable(f"element type {index} of {len(DTYPES)}")
        shape = self.numbers()
        if shape and min(shape) < 0:
            raise BadTable(f"shape {shape}")
        return TT(shape, DTYPES[index])

    def view(self) -> View | None:
        return View(self.number(), self.numbers()) if self.number() else None

    def loops(self) -> tuple[Loop, ...]:
        return self.many(lambda: Loop(self.number(), self.number(), self.number()), 3)

    def op(self) -> BodyOp:
        name, location, operands, results = self.string(), self.string(), self.numbers(), self.numbers()
        attrs = self.value()
        if not isinstance(attrs, dict):
            raise BadTable(f"attributes of {name} are not a dictionary")
        return BodyOp(name, cast("dict[str, Any]", attrs), operands, results, location)

    def unit(self) -> Unit:
        kind = self.number()
        name, location, sites = self.string(), self.string(), self.pairs()
        match kind:
            case 0:
                mode, stages, inputs, outputs = self.string(), self.number(), self.number(), self.numbers()
                types = self.many(self.type, 2)
                return Pcu(name, mode, inputs, self.many(self.op, 5), outputs, types, sites, location, stages)
            case 1:
                type = self.type()
                frames, copies, split, banks, kept = (self.number() for _ in range(5))
                fill = self.real()
                return Pmu(
                    name, type.shape, type.dtype, frames, copies, fill, split, banks, sites, location, bool(kept)
                )
            case 2:
                return Agcu(name, self.string(), self.number(), sites, location)
            case _:
                raise BadTable(f"unknown kind of unit {kind}")

    def flow(self) -> Flow:
        src, src_port, dst, dst_port, credits = (self.number() for _ in range(5))
        tile = self.type()
        stream = Stream(tile.shape, tile.dtype, self.loops(), self.loops())
        src_view, dst_view, pairs = self.view(), self.view(), self.pairs()
        return Flow(
            src, src_port, dst, dst_port, stream, src_view, dst_view, pairs, self.table(), self.table(), credits
        )

    def config(self) -> Config:
        return Config(
            self.string(),
            self.many(lambda: Param(self.string(), self.type(), self.string()), 4),
            self.many(self.unit, 4),
            self.many(self.flow, 10),
        )

    def region(self) -> Region:
        name, kind, memory, key = (self.string() for _ in range(4))
        return Region(name, kind, self.type(), memory, self.number(), key, self.number())

    def launch(self) -> Launch:
        config, runs, mode, location = self.number(), self.number(), self.string(), self.string()
        return Launch(config, self.many(lambda: (self.number(), self.number()), 2), mode, location, runs)

    def port(self) -> Port:
        return Port(self.string(), self.type(), self.number(), self.number())

    def program(self) -> Program:
        device = self.value()
        regions, configs, launches = self.many(self.region, 7), self.many(self.config, 3), self.many(self.launch, 5)
        loops = self.many(lambda: LaunchLoop(self.number(), self.number(), self.number()), 3)
        found = Program(
            device,
            regions,
            configs,
            launches,
            self.many(self.port, 4),
            self.many(self.port, 4),
            self.many(lambda: (self.string(), self.string()), 2),
            self.value(),
            loops,
            dict(self.many(lambda: (self.string(), self.number()), 2)),
            self.value(),
            self.value(),
        )
        for what in ("device", "meta", "shardings", "stacks"):
            if not isinstance(getattr(found, what), dict):
                raise BadTable(f"{what} is not a dictionary")
        return found


def schema_of(data: Bytes) -> int:
    """Version of a table's layout."""
    head = data[:8].tobytes()
    if len(head) < 8 or head[:4] != MAGIC:
        raise BadTable("not a program table")
    return struct.unpack_from("<I", head, 4)[0]


def decode(data: Bytes, ints: Ints) -> Program:
    """The program of a table whose schema is ours; `BadTable` when the bytes are not one."""
    if schema_of(data) != SCHEMA:
        raise BadTable(f"schema {schema_of(data)}, this reader has {SCHEMA}")
    reader = _Reader(data.tobytes(), ints)
    try:
        (size,) = struct.unpack_from("<Q", reader.data, 8)
        reader.at = 16
        reader.strings = [text.decode() for text in reader.many(reader.blob)]
        start = reader.at
        program = reader.program()
    except (IndexError, struct.error, UnicodeDecodeError, OverflowError, MemoryError, RecursionError) as error:
        raise BadTable(f"the table ends early or is garbled ({type(error).__name__})") from None
    if reader.at != start + size:
        raise BadTable("the table's length is wrong")
    return program
