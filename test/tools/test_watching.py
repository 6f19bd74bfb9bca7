"""What is written while passes run: traces that Perfetto opens, dumps to go on from, statistics, in both commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from command import headrace as command
from command import succeeds

from headrace.passes.infra.manager import Record
from headrace.tools.demo import Attention
from headrace.tools.watching import trace_events

PROGRAM = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = tensor.neg %x : tensor<4xf32> -> tensor<4xf32>
  %1 = tensor.neg %x : tensor<4xf32> -> tensor<4xf32>
  %2 = tensor.add %0, %1 : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
  func.return %2 : tensor<4xf32>
}
"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "m.onnx"
    onnx.save(Attention(tokens=16, width=16, heads=2).model(), path)
    return path


def check_trace(events: list[dict[str, Any]]) -> None:
    """The rules of the trace-event format, and that slices of a thread nest."""
    for event in events:
        assert event["ph"] in ("M", "X", "C") and isinstance(event["name"], str)
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        if event["ph"] != "M":
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, int) for value in event["args"].values())
    slices = sorted((e["ts"], -e["dur"]) for e in events if e["ph"] == "X")
    ends: list[float] = []
    for start, length in slices:
        while ends and ends[-1] <= start + 0.2:  # a tenth of a microsecond is the resolution
            ends.pop()
        assert not ends or start - length <= ends[-1] + 0.2, "slices of a thread lie inside one another or apart"
        ends.append(start - length)


def inside(events: list[dict[str, Any]], outer: str) -> list[str]:
    """The passes inside the slice of a step."""
    (step,) = (e for e in events if e["ph"] == "X" and e["name"] == outer)
    return [
        e["name"]
        for e in events
        if e.get("cat") == "pass" and step["ts"] <= e["ts"] <= e["ts"] + e["dur"] <= step["ts"] + step["dur"] + 0.2
    ]


def test_the_trace_of_a_compilation(demo: Path) -> None:
    path = demo.with_name("trace.json")
    succeeds("compile", demo, "-o", demo.with_name("m.sn"), "--trace", path)
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    check_trace(events)
    steps = [e["name"] for e in events if e.get("cat") == "step"]
    wanted = ["import", "load passes", "phase tensor", "phase dataflow", "phase rdu", "verify", "encode", "write"]
    assert [name for name in steps if name in wanted] == wanted
    assert inside(events, "phase tensor")[0] == "canonicalize" and "place" in inside(events, "phase rdu")
    (convert,) = (e for e in events if e["name"] == "convert-dataflow-to-rdu")
    args = convert["args"]
    assert args["changed"] is True and args["delta"]["rdu.config"] == 1 and args["ops"] - args["more_ops"] > 0
    counts = {e["name"]: e["args"]["ops"] for e in events if e["ph"] == "C"}
    assert counts["dataflow ops"] == 0 and counts["rdu ops"] > 10, "the last event of each counter"


def test_the_trace_of_passes(opt, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    found = opt(PROGRAM + "// -----\n" + PROGRAM, "-p", "cse,tensor", "--split-input-file", "--trace", str(path))
    assert found.code == 0, found.err
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    check_trace(events)
    assert [e["name"] for e in events if e.get("cat") == "pass"].count("cse") == 6, "three times in each part"
    first = next(e for e in events if e.get("cat") == "pass")
    assert first["args"]["delta"] == {"tensor.neg": -1} and first["args"]["rewrites"]
    assert {"start", "parse", "phase passes", "phase tensor", "print", "write"} <= {e["name"] for e in events}


def test_a_trace_is_written_when_a_pass_fails(opt, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    found = opt(PROGRAM, "--to=dataflow", "--trace", str(path), "--timing")  # narrow-joins needs a device
    assert found.code == 2 and "no-device" in found.err and "convert-tensor-to-dataflow" in found.err
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    check_trace(events)
    assert inside(events, "phase that failed")[-1] == "narrow-joins"


def test_statistics_are_arguments() -> None:
    record = Record("x{a=1}", "", 1.0, 0.5, 0.4, None, {"a.b": 3, "c.d": 1}, {"a.b": -1}, {"seen": 2}, {"p": 1})
    _, _, event, *counters = trace_events((), [record])
    assert event["name"] == "x" and event["ts"] == 0 and event["dur"] == 0.5e6
    assert event["args"] == {
        "pipeline": "x{a=1}",
        "changed": None,
        "cpu_ms": 400.0,
        "ops": 4,
        "more_ops": -1,
        "delta": {"a.b": -1},
        "statistics": {"seen": 2},
        "rewrites": {"p": 1},
    }
    assert [(e["name"], e["ts"], e["args"]["ops"]) for e in counters] == [
        ("a ops", 0.0, 4),
        ("c ops", 0.0, 1),
        ("a ops", 0.5e6, 3),
    ]
    check_trace([event, *counters])


def test_a_trace_of_nothing(opt, tmp_path: Path) -> None:
    assert opt("", "--trace", str(tmp_path / "t.json")).code == 0
    check_trace(json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"])
    refused = opt("", "--trace", str(tmp_path / "no" / "t.json"))
    assert refused.code == 2 and "cannot-write" in refused.err and refused.out == "", "before anything is done"


# Dumps


def test_dumps_of_passes_are_what_changed(opt, tmp_path: Path) -> None:
    found = opt(
        PROGRAM, "-p", "cse,dce,tensor", "--dump-passes", str(tmp_path / "d"), "--dump-phases", str(tmp_path / "p")
    )
    assert found.code == 0, found.err
    assert [path.name for path in sorted((tmp_path / "d").iterdir())] == ["01.cse.mlir", "03.canonicalize.mlir"]
    assert [path.name for path in sorted((tmp_path / "p").iterdir())] == [
        "0.import.mlir",
        "1.passes.mlir",
        "2.tensor.mlir",
    ]
    after = (tmp_path / "d" / "01.cse.mlir").read_text(encoding="utf-8")
    assert opt(after).out == opt(PROGRAM, "-p", "cse").out and 'loc("<stdin>":4:3)' in after


def test_dumps_of_parts_have_folders(opt, tmp_path: Path) -> None:
    opt(PROGRAM + "// -----\n" + PROGRAM, "-p", "cse", "--split-input-file", "--dump-passes", str(tmp_path))
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.mlir")) == [
        "0/01.cse.mlir",
        "1/01.cse.mlir",
    ]


def test_dumps_of_a_compilation_are_gone_on_from(demo: Path) -> None:
    """From what any pass left, the other passes lead to the same artifact."""
    folder = demo.with_name("passes")
    succeeds("compile", demo, "-o", demo.with_name("m.sn"), "--dump-passes", folder)
    text = succeeds("compile", demo, "-o", demo.with_name("m.sn"), "--print-pipeline").err.strip()
    names = text.split(",")
    paths = sorted(folder.iterdir())
    assert len(paths) > 8
    for path in paths[:: len(paths) // 3]:
        number, name, _ = path.name.split(".")
        assert names[int(number) - 1] == name
        rest = ",".join(names[int(number) :])
        succeeds("compile", path, "--passes", rest, "--weights", demo, "-o", demo.with_name("again.sn"))
        assert demo.with_name("again.sn").read_bytes() == demo.with_name("m.sn").read_bytes(), path.name


def test_a_compilation_shows_what_the_passes_do(demo: Path) -> None:
    flags = ("--print-ir-after-change", "--print-ir-before", "place", "--print-ir-after", "fuse-stages", "--statistics")
    shown = succeeds("compile", demo, "-o", demo.with_name("m.sn"), *flags).err
    assert "IR before place" in shown and "IR after fuse-stages" in shown and "IR before route" not in shown
    assert "change by place" in shown and "+++ after rdu.config @" in shown
    assert "  +1  ops: rdu.config" in shown
    refused = command("compile", demo, "-o", demo.with_name("m.sn"), "--print-ir-before", "plce")
    assert refused.code == 2 and "did you mean 'place'?" in refused.err


def test_an_output_is_there_whole_or_not_at_all(opt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "x.mlir"
    target.write_text("before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", full)
        refused = opt(PROGRAM, "-o", str(target))
    assert refused.code == 2 and "No space left" in refused.err
    assert target.read_text() == "before" and list(tmp_path.iterdir()) == [target]
    assert opt(PROGRAM, "-o", str(target)).code == 0 and "tensor.neg" in target.read_text()
    assert opt(PROGRAM, "-o", "/dev/null").code == 0 and Path("/dev/null").is_char_device()
