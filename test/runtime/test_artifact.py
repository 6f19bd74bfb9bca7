"""Artifacts: what is written is read, byte for byte the same each time; broken files are refused with a reason."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from programs import CASES, Case, cache, ffn, rand

from headrace.backend import writer
from headrace.backend.writer import write_artifact
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.shapes import TT
from headrace.runtime import artifact, table
from headrace.runtime.artifact import open_artifact
from headrace.runtime.program import Program
from headrace.runtime.session import load


def save(path: Path, case: Case) -> Path:
    write_artifact(path, case.program, case, compiler="0.1.0", manifest={"model": "toy", "precision": "fp32"})
    return path


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save(tmp_path / "m.sn", ffn())


def refused(path: Path, verify: bool | None = None) -> CompileError:
    with pytest.raises(CompileError) as caught:
        open_artifact(path, verify)
    return caught.value


def same(a: Program, b: Program) -> None:
    """Programs hold arrays, so equality is that of their tables."""
    for x, y in zip(table.encode(a), table.encode(b), strict=True):
        np.testing.assert_array_equal(x, y)
    assert (a.device, a.regions, a.launches, a.inputs, a.outputs, a.states, a.meta, a.loops) == (
        b.device, b.regions, b.launches, b.inputs, b.outputs, b.states, b.meta, b.loops
    )  # fmt: skip


@pytest.mark.parametrize("name", list(CASES))
def test_round_trip(name: str, tmp_path: Path) -> None:
    case = CASES[name]()
    found = open_artifact(save(tmp_path / "m.sn", case))
    same(case.program, found.program)
    assert sorted(found.keys) == sorted(case.weights)
    for key, array in case.weights.items():
        np.testing.assert_array_equal(found.array(key), array)
        assert not found.array(key).flags.writeable


def test_fields_that_the_cases_leave_at_their_defaults_survive() -> None:
    program = ffn().program
    config = program.configs[0]
    unit = replace(config.units[4], stages=3, location="a/b:7")
    attrs = {
        "a": -1,
        "b": 2.5,
        "c": "x",
        "d": True,
        "e": (1, -2),
        "f": (0.5,),
        "g": b"\0\1",
        "h": None,
        "i": rand(0, 2, 3),
        "j": np.broadcast_to(np.float32(0.5), (64, 64)),
    }
    ops = (replace(unit.ops[0], attrs=attrs, location="op"), *unit.ops[1:])
    flows = (
        replace(config.flows[0], starts=np.array([0, 2, 3, 3, 3]), links=np.array([5, 6, 7]), credits=9),
        *config.flows[1:],
    )
    changed = replace(config, units=(*config.units[:4], replace(unit, ops=ops), *config.units[5:]), flows=flows)
    program = replace(program, configs=(changed,), meta={"n": {"deep": (1, "two")}}, states=(("a", "b"),))
    found = table.decode(*table.encode(program))
    same(program, found)
    back = found.configs[0].units[4].ops[0].attrs
    assert {k: v for k, v in back.items() if k not in "ij"} == {k: v for k, v in attrs.items() if k not in "ij"}
    assert type(back["d"]) is bool and type(back["a"]) is int
    np.testing.assert_array_equal(back["i"], attrs["i"])
    np.testing.assert_array_equal(back["j"], attrs["j"])
    assert found.configs[0].flows[0].links.tolist() == [5, 6, 7]


def test_weights_lie_on_cache_lines_whatever_their_sizes(tmp_path: Path) -> None:
    found = open_artifact(save(tmp_path / "m.sn", CASES["gathered"]()))
    assert [found.array(key).ctypes.data % 8 for key in found.keys] == [0, 0]
    assert found.array("table").ctypes.data % 64 == 0


def test_every_altered_byte_is_noticed(saved: Path) -> None:
    data = saved.read_bytes()
    rng = np.random.default_rng(0)
    (size,) = struct.unpack("<Q", data[:8])
    places = [*range(8), *rng.choice(8 + size, 150, replace=False), *rng.choice(len(data), 150, replace=False)]
    for at in map(int, places):
        saved.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        assert refused(saved, True).code in ("bad-artifact", "artifact-schema"), at


def test_every_truncation_is_noticed(saved: Path) -> None:
    data = saved.read_bytes()
    for length in (0, 1, 7, 8, 9, 100, len(data) // 2, len(data) - 1):
        saved.write_bytes(data[:length])
        assert refused(saved).code == "bad-artifact"
    saved.write_bytes(data + b"x")
    assert "something was appended" in str(refused(saved))


def test_large_weights_are_verified_when_asked(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = saved.read_bytes()
    saved.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert "weights or states do not match their digests: b" in str(refused(saved))
    monkeypatch.setattr(artifact, "CHEAP", 16)
    open_artifact(saved)  # too large to verify each time
    assert "weights or states do not match" in str(refused(saved, True))


def started(path: Path, states: dict[str, np.ndarray]) -> Path:
    case = cache()
    write_artifact(path, case.program, case, compiler="0.1.0", states=states)
    return path


def test_states_begin_at_what_was_written(tmp_path: Path) -> None:
    first = rand(0, 8, 4)
    path = started(tmp_path / "m.sn", {"cache": first})
    found = open_artifact(path)
    assert found.keys == () and list(found.states) == ["cache"]
    with pytest.raises(CompileError, match="no bytes for weight"):
        found.array("headrace/state/cache")
    for literal in (False, True):
        exe = load(path, literal=literal)
        row, at = np.ones((1, 4), np.float32), np.array([2])
        for one in (exe, exe.clone()):
            np.testing.assert_allclose(one({"new": row, "at": at})["y"], first.sum(0), rtol=1e-5)
        exe.reset()
        np.testing.assert_array_equal(exe.state()["cache"], first)
    plain = started(tmp_path / "zero.sn", {"cache": np.zeros((8, 4), np.float32)})
    assert not open_artifact(plain).states and not load(plain).state()["cache"].any()


def test_states_that_are_broken_or_of_another_program_are_refused(tmp_path: Path) -> None:
    path = started(tmp_path / "m.sn", {"cache": rand(0, 8, 4)})
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert "do not match their digests: headrace/state/cache" in str(refused(path))
    for name, first in (("cash", rand(0, 8, 4)), ("cache", rand(0, 8, 5)), ("cache", np.ones((8, 4), np.int64))):
        with pytest.raises(CompileError, match="states do not fit the program"):
            started(tmp_path / "other.sn", {name: first})
    assert [file.name for file in tmp_path.iterdir()] == ["m.sn"]
    # A file that another writer made
    case = cache()
    state = (TT((8, 3), "f32"), np.ones((8, 3), np.float32))
    for key, told in (
        ("cache", "state 'cache' is tensor<8x3xf32> but"),
        ("cash", "state 'cash' is tensor<8x3xf32> but the program has none"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(writer, "_states", lambda program, states, key=key: {artifact.STATE + key: state})
            write_artifact(path, case.program, case, compiler="0.1.0")
        assert told in str(refused(path))


@pytest.mark.parametrize(
    ("schema", "told", "fix"), [("0", "older", "compile the model again"), ("5", "newer", "upgrade")]
)
def test_another_schema_says_which_side_to_rebuild(saved: Path, schema: str, told: str, fix: str) -> None:
    data = saved.read_bytes()
    saved.write_bytes(data.replace(b'"schema":"4"', b'"schema":"%s"' % schema.encode()))
    error = refused(saved)
    assert error.code == "artifact-schema"
    assert told in error.why and fix in error.fix


def test_other_files_are_refused(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    path = tmp_path / "x.sn"
    assert "cannot be read" in str(refused(path))
    path.write_bytes(b"hello world, this is no artifact at all")
    assert refused(path).code == "bad-artifact"
    save_file({"a": np.zeros(3)}, path)
    assert "not an artifact of Headrace" in str(refused(path))


def test_garbled_tables_are_refused_not_crashed_on() -> None:
    """With a matching digest nothing but the decoder stands between a hostile table and the runtime."""
    data, ints = table.encode(ffn().program)
    rng = np.random.default_rng(1)
    for _ in range(2000):
        broken = data.copy()
        at = rng.integers(0, len(data), rng.integers(1, 4))
        broken[at] = rng.integers(0, 256, len(at))
        try:
            table.decode(broken, ints[: rng.integers(0, len(ints) + 1)])
        except table.BadTable:
            continue


def test_a_program_without_weights_is_kept_but_not_run(tmp_path: Path) -> None:
    path = tmp_path / "m.sn"
    write_artifact(path, ffn().program, None, compiler="0.1.0")
    assert open_artifact(path).keys == ()
    with pytest.raises(CompileError, match="compiled without its weights"):
        load(path)
