"""Views of a profile: they are well formed, the numbers in them are those of the profile, and text stays text."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import workloads

import headrace
from headrace.dialects.machine.device import UNIT_KINDS, load_device
from headrace.dialects.support.diagnostics import CompileError
from headrace.runtime.program import Program
from headrace.runtime.timing import Timing, time_program
from headrace.tools import views
from headrace.tools.cli import execute
from headrace.tools.views.trace import bandwidth

SVG = "{http://www.w3.org/2000/svg}"
ODD = "a <b> & \"c\" 'd' \x01 ]]> é"


@pytest.fixture(scope="module")
def program() -> Program:
    return headrace.compile(workloads.small("llama").model(), mode="O1").program


@pytest.fixture(scope="module")
def timing(program: Program) -> Timing:
    return time_program(program)


def drawn(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def test_the_points_of_a_roofline_are_the_sections(program: Program, timing: Timing) -> None:
    picture = drawn(views.roofline(program, timing))
    points = {e.attrib["data-name"]: e.attrib for e in picture.iter() if "data-name" in e.attrib}
    computing = [c for c in timing.configs if c.flops]
    assert len(computing) > 1
    assert set(points) == {"whole program", *(f"@{c.name}" for c in computing)}
    for c in computing:
        shown = points[f"@{c.name}"]
        assert float(shown["data-intensity"]) == pytest.approx(c.flops / (c.hbm_bytes + c.ddr_bytes))
        assert float(shown["data-rate"]) == pytest.approx(c.flops / (c.cycles / timing.clock))
        assert float(shown["data-rate"]) < float(shown["data-roof"])
    whole = points["whole program"]
    assert float(whole["data-rate"]) == pytest.approx(timing.flops / timing.seconds)
    assert float(whole["data-intensity"]) == pytest.approx(timing.flops / (timing.hbm_bytes + timing.ddr_bytes))
    # a point lies where its numbers are, between the ticks of the axes
    texts = [e for e in picture.iter(f"{SVG}text") if e.attrib["font-size"] == "12"]
    ticks = [e for e in texts if e.attrib.get("text-anchor") == "middle"]
    scale = sorted((float(e.text or 0), float(e.attrib["x"])) for e in ticks if re.fullmatch(r"[\d.]+", e.text or ""))
    dot = next(e for e in picture.iter(f"{SVG}circle") if e.attrib.get("data-name") == f"@{computing[0].name}")
    below = [at for value, at in scale if value <= float(dot.attrib["data-intensity"])]
    above = [at for value, at in scale if value > float(dot.attrib["data-intensity"])]
    assert max(below) <= float(dot.attrib["cx"]) <= min(above)


def test_the_ceilings_of_a_roofline_are_those_of_the_device(program: Program, timing: Timing) -> None:
    device = load_device("sn40l")
    data = views.rooflines(program, timing)
    assert data.compute["bf16, i8"] == pytest.approx(638e12, rel=0.01)
    assert data.compute["f32, i32"] == data.compute["bf16, i8"] / 2
    assert device.hbm is not None
    assert data.memory == {
        "hbm": device.hbm.bandwidth * device.hbm.efficiency,
        "ddr": device.ddr.bandwidth * device.ddr.efficiency,
    }
    for p in data.sections:
        assert p.roof == pytest.approx(min(data.compute["f32, i32"], p.intensity * data.memory["hbm"]))


def test_a_floorplan_has_all_units_and_links(program: Program, timing: Timing) -> None:
    device = load_device("sn40l")
    for config in timing.configs:
        data = views.floor(program, timing, config.name)
        assert max(data.links.values()) == pytest.approx(config.link_load)
        picture = drawn(views.floorplan(program, timing, f"@{config.name}"))
        groups = {e.attrib["data-group"]: e for e in picture.iter() if "data-group" in e.attrib}
        assert {u.name: u.sites for u in config.units} == {n: int(e.attrib["data-sites"]) for n, e in groups.items()}
        squares = sum(e.attrib["d"].count("z") for e in picture.iter(f"{SVG}path"))
        assert squares == sum(device.count(kind) for kind in UNIT_KINDS)
        for unit in config.units:
            assert groups[unit.name].attrib["d"].count("z") == unit.sites
            if unit.kind == "pcu":
                use = unit.parts["compute"] / config.cycles
                assert float(groups[unit.name].attrib["data-use"]) == pytest.approx(use)
        links = sum(int(e.attrib["data-links"]) for e in picture.iter() if "data-links" in e.attrib)
        assert links == len(data.links) > 0


def test_the_floorplan_is_that_of_the_longest_section(program: Program, timing: Timing) -> None:
    found = zip(timing.runs, timing.configs, strict=True)
    assert views.floor(program, timing).time is max(found, key=lambda x: x[0] * x[1].cycles)[1]
    with pytest.raises(CompileError, match="there is no section 'main_77'"):
        views.floorplan(program, timing, "main_77")


def test_the_slices_of_a_trace_sum_to_the_time(program: Program, timing: Timing) -> None:
    events: list[dict[str, Any]] = json.loads(views.trace(program, timing))["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    track = [e for e in slices if e["pid"] == 0]
    assert sum(e["dur"] for e in track) == pytest.approx(timing.seconds * 1e6)
    assert [e["name"] for e in track[1::2]] == [f"@{timing.configs[x.config].name}" for x in timing.launches]
    ends = [e["ts"] + e["dur"] for e in track]
    assert [e["ts"] for e in track[1:]] == pytest.approx(ends[:-1])
    for e in slices:
        if e["pid"]:
            name = f"@{timing.configs[e['pid'] - 1].name}"
            home = next(
                x for x in track if x["name"] == name and x["ts"] <= e["ts"] + 1e-3 <= x["ts"] + x["dur"] + 2e-3
            )
            assert e["ts"] + e["dur"] <= home["ts"] + home["dur"] + 1e-3
    groups = sum(bool(u.present) for x in timing.launches for u in timing.configs[x.config].units)
    assert len(slices) == len(track) + groups


def test_the_counters_of_a_trace_integrate_to_the_traffic(program: Program, timing: Timing) -> None:
    for config in timing.configs:
        steps = bandwidth(config, "hbm")
        moved = sum(rate * (b - a) for (a, rate), (b, _) in pairwise(steps))
        assert moved == pytest.approx(config.hbm_bytes) and steps[-1][1] == 0
    events = json.loads(views.trace(program, timing))["traceEvents"]
    counted = [e for e in events if e["ph"] == "C"]
    moved = sum(a["args"]["GB/s"] * (b["ts"] - a["ts"]) * 1e3 for a, b in pairwise(counted))
    assert moved == pytest.approx(timing.hbm_bytes, rel=1e-3)


class _Tags(HTMLParser):
    """Open elements, and everything that would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [str(value) for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_a_page_is_whole_and_says_what_the_profile_says(program: Program, timing: Timing) -> None:
    text = views.page(program, timing)
    tags = _Tags()
    tags.feed(text)
    assert not tags.open and not tags.fetched and "<script" not in text
    for picture in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        drawn(picture)
    said = " ".join(tags.text)
    assert f"{timing.cycles:,.0f} cycles" in said
    for c in timing.configs:
        assert f"@{c.name}" in said and f"{c.stall:.0%}" in said
    assert timing.ops[0].location in said
    assert text == views.page(program, timing)


def test_names_are_text_whatever_is_in_them(program: Program) -> None:
    configs = tuple(
        replace(c, name=f"{c.name}{ODD}", units=tuple(replace(u, name=f"{u.name}{ODD}", location=ODD) for u in c.units))
        for c in program.configs
    )
    given = replace(program, configs=configs, meta={**program.meta, "model": ODD})
    timing = time_program(given)
    told = ODD.replace("\x01", "\ufffd")
    for text in (views.roofline(given, timing), views.floorplan(given, timing)):
        titles = [e.text or "" for e in drawn(text).iter(f"{SVG}title")]
        assert any(told in title for title in titles)
    tags = _Tags()
    tags.feed(views.page(given, timing))
    assert not tags.open and told in "".join(tags.text)
    json.loads(views.trace(given, timing))


def test_a_program_that_computes_nothing_has_views() -> None:
    import onnx
    from onnx import helper

    port = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [8, 4]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", port[:1], port[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    program = headrace.compile(model).program
    timing = time_program(program)
    drawn(views.roofline(program, timing))
    tags = _Tags()
    tags.feed(views.page(program, timing))
    assert not tags.open
    json.loads(views.trace(program, timing))


def test_the_command_writes_views(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifact = tmp_path / "m.sn"
    headrace.compile(workloads.small("mlp_b256").model()).save(artifact)
    files = {"--page": "p.html", "--roofline": "r.svg", "--floorplan": "f.svg", "--trace": "t.json"}
    given = [x for flag, name in files.items() for x in (flag, str(tmp_path / name))]
    assert execute(["run", str(artifact), *given]) == 0
    shown = capsys.readouterr().out
    assert all(str(tmp_path / name) in shown for name in files.values()) and "section" not in shown
    drawn((tmp_path / "r.svg").read_text(encoding="utf-8"))
    drawn((tmp_path / "f.svg").read_text(encoding="utf-8"))
    json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert execute(["run", str(artifact), *given, "--section", "nowhere"]) == 2
    assert "there is no section 'nowhere'" in capsys.readouterr().err
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before  # all or none, and the same bytes
    for wrong, why in (
        (["--roofline", "r.html"], "--page writes one"),
        (["--section", "x"], "--section is about --floorplan"),
        (["--roofline", str(tmp_path / "a.svg"), "--floorplan", str(tmp_path / "a.svg")], "one file"),
        (["--page", str(artifact)], "ends in .html"),
        (["--trace", str(tmp_path / "no" / "t.json")], "there is no folder"),
    ):
        assert execute(["run", str(artifact), *wrong]) == 2
        assert why in capsys.readouterr().err
