"""Predictions held against published results: the table, the signs of errors, the report, and the functions of rows on
inputs of other sizes than theirs. No test predicts a held-out row."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

from headrace.dialects.machine.device import load_device
from headrace.dialects.support.diagnostics import CompileError
from headrace.frontends.decoder import DecoderConfig
from headrace.tools.validate import KINDS, ROWS, Answer, Outcome, Range, Report, Row, fit, row_of, validate
from headrace.tools.validate import predictions as functions
from headrace.tools.validate.constants import FREE, constants
from headrace.tools.validate.programs import convolution, inner_product, product
from headrace.tools.validate.report import summary

SMALL = DecoderConfig("small", layers=4, hidden=1024, heads=16, kv_heads=8, head_dim=64, intermediate=4096, vocab=8192)
SIZES: Any = {"config": SMALL, "sockets": 4, "length": 512}


def row(published: float | Range, kind: Any = "HO", **asked: float) -> Row:
    return Row("x", "work", "rate", "%", published, "none", kind, "a paper", "2024", **asked)


def test_every_row_says_where_it_is_from_and_what_is_asked() -> None:
    assert len({x.id for x in ROWS}) == len(ROWS)
    assert {x.id.partition(".")[0].rstrip("ab") for x in ROWS} == {str(n) for n in range(1, 20)}
    for one in ROWS:
        assert one.kind in KINDS and one.source and one.vintage and one.workload and one.metric and one.conditions
        asked = isinstance(one.published, Range) + (one.relative is not None) + (one.points is not None)
        assert asked == (0 if one.id.startswith("17.") else 1), one.id
        assert bool(one.missing) != (one.id in functions.FUNCTIONS), one.id
        if isinstance(one.published, Range):
            assert one.kind in ("RANGE", "ID") and (one.published.low or one.published.high)
    assert set(functions.FUNCTIONS) <= {x.id for x in ROWS}


def test_constants_are_set_by_no_held_out_row() -> None:
    assert all(row_of(name).kind in ("FIT", "RANGE") for rows in FREE.values() for name in rows)
    found = {(x.device, x.path): x for x in constants()}
    assert found["sn40l", "launch.software"].value == load_device("sn40l").launch.software
    assert all(x.basis.startswith("inferred: ") for x in found.values())


def test_errors_have_the_sign_of_what_is_predicted_too_high() -> None:
    assert row(100.0, relative=0.1).error(109) == pytest.approx(0.09)
    assert row(100.0, relative=0.1).error(50) == pytest.approx(-0.5)
    assert [row(100.0, relative=0.1).within(x) for x in (91, 109, 111)] == [True, True, False]
    assert [row(72.0, points=5).within(x) for x in (66.9, 67, 77, 77.1)] == [False, True, True, False]
    assert [row(3.0, relative=0.0).within(x) for x in (3, 4)] == [True, False]
    span = row(Range(1.5, 3), "RANGE")
    assert [span.error(x) for x in (1.5, 2, 3)] == [0, 0, 0]
    assert span.error(6) == pytest.approx(1) and span.error(0.75) == pytest.approx(-0.5)
    assert row(Range(None, 1.1)).error(0.5) == 0 and row(Range(300, None)).error(150) == pytest.approx(-0.5)
    assert row(7.0).within(100) is None


def test_identities_are_within_what_is_asked() -> None:
    found = validate(["ID"], {x.id for x in ROWS if x.kind == "ID" and not x.id.startswith("9.")})
    assert len(found.outcomes) == 9
    assert all(x.within for x in found.outcomes), [(x.row.id, x.error) for x in found.outcomes]


def test_the_report_keeps_kinds_apart(tmp_path: Any) -> None:
    found = validate(["ID", "RANGE"], ["1.sn10", "1.sn40l"])
    data = json.loads(json.dumps(found.to_json()))
    assert [x["id"] for x in data["rows"]] == ["1.sn10", "1.sn40l"]
    wanted = {"id", "workload", "metric", "published", "predicted", "error", "kind", "source"}
    assert all(wanted <= set(x) for x in data["rows"]) and data["rows"][0]["published"] == [300, None]
    assert data["rows"][1]["error"] == pytest.approx(638.976 / 638 - 1)
    text = found.markdown()
    assert "## ID" in text and "## RANGE" not in text and "launch.software" in text
    assert not re.search(r"\d+ (of|out of) \d+ (rows|pass)", text)


def outcomes() -> tuple[Outcome, ...]:
    step = functions.predict(SMALL, functions.System("sn40l"), context=256)
    rows = [row(100.0, "FIT", relative=0.1), row(Range(1, 2), "RANGE"), row(10.0, relative=0.2)]
    found = [Outcome(one, Answer(value, "a | note", (step,))) for one, value in zip(rows, (90, 3, 20), strict=True)]
    return (*found, Outcome(row(1.0, relative=0.2), None, "a fact <is> missing"))


def test_the_page_has_a_point_for_each_row_and_needs_no_other_file() -> None:
    page = Report(("FIT", "RANGE", "HO"), outcomes(), constants()).html()
    assert page.count("<svg") == 2  # agreement, and the roofline of the one step
    assert page.count('data-row="x"') == 3 and "a fact &lt;is&gt; missing" in page
    assert not re.search(r"(src|href)=", page)
    assert [x for x in re.findall(r"<(\w+)[ >]", page) if x == "table"] == ["table"] * 4


def test_summaries_are_of_one_kind() -> None:
    fit, span, held, none = outcomes()
    assert summary("FIT", [fit]) == "Median absolute error 10.0%, largest 10.0%."
    assert summary("RANGE", [span]) == "Outside of their range: x."
    assert summary("HO", [held, none]) == "Median absolute error 100.0%, largest 100.0%. Without a prediction: 1."
    assert summary("HO", [none]).startswith("No row of this kind")


def test_what_the_compiler_refuses_is_a_row_without_a_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any) -> Answer:
        raise CompileError("not-mapped", "it is too large")

    monkeypatch.setitem(functions.FUNCTIONS, "1.sn40l", refuse)
    (found,) = validate(["ID"], ["1.sn40l"]).outcomes
    assert found.answer is None and found.why == "refused: not-mapped: it is too large"


def test_pipelines_take_their_slowest_stage_and_their_depth() -> None:
    each, first = functions.stages(seconds=2.0, depth=5, samples=32)
    assert (each, first) == (pytest.approx(2.0), pytest.approx(10.0))


def test_gains_of_fusion_and_of_launches_on_a_small_model() -> None:
    fused = functions.fusion_gain(functions.FILES, "decode", **SIZES)
    assert fused.value > 1 and len(fused.steps) == 2
    chip = functions.launch_gain(functions.FILES, "decode", **SIZES)
    launch = load_device("sn40l").launch
    saved = (chip.steps[0].launches - 1) * (launch.software - launch.hardware)
    assert chip.steps[0].seconds - chip.steps[1].seconds == pytest.approx(saved)
    slower = functions.Study({"sn40l": {"launch.software": 6e-5}})
    assert functions.launch_gain(slower, "decode", **SIZES).value > chip.value


def test_rates_count_tokens_of_a_user() -> None:
    found = functions.decode_rate(functions.FILES, SMALL, "sn40l", 4, 512)
    assert found.value == pytest.approx(1 / found.steps[0].seconds)
    steps = functions.tokens_per_step(functions.FILES, SMALL, 2 * found.value, 4, 512)
    assert steps.value == pytest.approx(2.0)
    many = functions.data_parallel(functions.FILES, SMALL, 512, 2, 2, 4)
    assert many.steps[0].batch == 2 and many.steps[0].system.sockets == 4


def test_a_product_over_sockets_is_below_its_peak_and_its_sums_are_sent() -> None:
    timing = product(load_device("sn50"), 4, 4096, 4096, 1024)
    assert 0 < 2 * 4096 * 4096 * 1024 / 4 / timing.peak_flops < timing.seconds
    assert timing.peer_bytes > 0
    assert timing.flops >= 2 * 4096 * 4096 * 1024 // 4


def test_a_convolution_by_transforms_is_one_section_when_fused() -> None:
    fused = convolution(load_device("sn40l"), True, 2, 32, 32)
    grid = 2 * 32 * 32
    products = grid * 2 * (2 * 32 + 4 * 32 + 4 * 32 + 2 * 32)  # to and from real numbers half as many
    assert fused.flops - products == pytest.approx(grid * (3 * 6 + 2 * 2 + 1), rel=0.01)
    assert len(fused.launches) == fused.host_launches == 1


def test_a_mixture_of_experts_has_a_rate() -> None:
    small = DecoderConfig("m", 2, 256, 8, 4, 64, 128, 1024, experts=8, experts_per_token=2, router="sigmoid")
    found = functions.mixture(functions.FILES, "sn40l", small, 2, 256)
    assert found.value == pytest.approx(1 / found.steps[0].seconds) and found.steps[0].weights == "f8e4m3"
    assert functions.minimax().parameters == pytest.approx(228.69e9, rel=1e-4)


def test_an_inner_product_reads_its_vectors_once() -> None:
    timing = inner_product(load_device("plasticine"), 1 << 18)
    assert timing.ddr_bytes == pytest.approx(8 * (1 << 18), rel=0.01)


@pytest.mark.full
def test_ranges_are_kept() -> None:
    found = validate(["RANGE"], ["6.decode", "7.decode", "7.prefill", "19"])
    assert all(x.within for x in found.outcomes), [(x.row.id, x.error) for x in found.outcomes]


def test_constants_are_fitted_to_what_lies_in_a_range() -> None:
    with pytest.raises(CompileError, match="is of kind HO"):
        next(fit.fitted("launch.software", [1e-5], [row_of("5")]))
    trials = [fit.Trial(1.0, {"6": 6.0}), fit.Trial(2.0, {"6": 2.9}), fit.Trial(3.0, {"6": 1.6})]
    assert [x.miss for x in trials] == pytest.approx([math.log(2), 0, 0])
    assert fit.best(trials, now=2.0).value == 2.0 and fit.best(trials, now=1.0).value == 3.0


def test_programs_are_timed_with_other_constants_without_compiling_anew() -> None:
    launch = load_device("sn40l").launch
    study = functions.Study({"sn40l": {"launch.software": launch.software + 1e-4}}, retimed=True)
    steps = [functions.predict(SMALL, x.system("sn40l"), launch="host") for x in (functions.FILES, study)]
    assert steps[1].compile_seconds == steps[0].compile_seconds  # it was compiled once
    assert steps[1].seconds - steps[0].seconds == pytest.approx(steps[0].launches * 1e-4)
