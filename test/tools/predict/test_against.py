"""A system against GPUs: both sides at every batch and length, what is interpolated, and what is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.dialects.support.diagnostics import CompileError
from headrace.frontends.decoder import PRESETS, TINY_MOE
from headrace.tools.predict import System, predict
from headrace.tools.predict.against import (
    METRICS,
    Comparison,
    Cost,
    Question,
    blend,
    chosen,
    compare,
    interpolated,
    named_model,
    prompt_at,
    rising,
)
from headrace.tools.predict.gpu import sizes_of
from headrace.tools.views.against import against_page

QUESTION = Question(
    "tiny-moe",
    System("sn50", 2),
    "h200",
    2,
    output=16,
    batches=(1, 2, 4),
    lengths=(16, 32, 64),
    compiled_batches=(1, 4),
    compiled_lengths=(16, 64),
)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("against") / "kept.json"


@pytest.fixture(scope="module")
def found(kept: Path) -> Comparison:
    return compare(QUESTION, kept)


def test_both_sides_have_every_point(found: Comparison) -> None:
    points = {(b, n) for b in QUESTION.batches for n in QUESTION.lengths}
    assert set(found.ours) == set(found.theirs) == points and not found.refused
    rows = found.rows()
    assert len(rows) == 2 * len(points)
    assert {row["side"] for row in rows} == {"rdu", "gpu"}
    assert json.loads(json.dumps(found.to_json()))["rows"] == rows


def test_what_is_compiled_is_what_is_predicted(found: Comparison) -> None:
    step = predict(TINY_MOE, System("sn50", 2), "decode", batch=4, context=64 + 8)
    point = found.ours[4, 64]
    assert point.decode.exact and point.first and point.first.exact
    assert point.decode.seconds == pytest.approx(step.seconds)
    assert point.value("user") == pytest.approx(1 / step.seconds)
    assert point.value("system") == pytest.approx(4 / step.seconds)
    prompt = predict(TINY_MOE, System("sn50", 2), "prefill", batch=1, tokens=64)
    assert point.value("first") == pytest.approx(prompt.seconds)
    assert point.served == pytest.approx(16 / (prompt.seconds + 16 * step.seconds / 4))


def test_the_others_lie_between_and_say_so(found: Comparison) -> None:
    for batch, length in ((2, 16), (1, 32), (2, 32)):
        point = found.ours[batch, length]
        assert not point.decode.exact
        around = [found.ours[b, n].decode.seconds for b in (1, 4) for n in (16, 64)]
        assert min(around) <= point.decode.seconds <= max(around)
        assert sum(point.decode.bounds.values()) == pytest.approx(point.decode.seconds)
    assert all(point.decode.exact and point.first and point.first.exact for point in found.theirs.values())


def test_ratios_and_where_they_are_enough(found: Comparison) -> None:
    for metric in METRICS:
        ratios = {at: found.ratio(metric, *at) or 0.0 for at in found.ours}
        ours, gpu = found.ours[1, 16].value(metric), found.theirs[1, 16].value(metric)
        assert ours is not None and gpu is not None
        assert ratios[1, 16] == pytest.approx(gpu / ours if metric == "first" else ours / gpu)
        middle = sorted(ratios.values())[4]
        marked = replace(found, question=replace(QUESTION, times=middle)).region(metric)
        assert set(marked) == {at for at, ratio in ratios.items() if ratio >= middle}
    assert found.ratio("user", 1, 17) is None


def test_one_that_is_refused_is_looked_for_below() -> None:
    for limit, made in ((100, [1, 8, 32]), (20, [1, 8, 16]), (8, [1, 8]), (5, [1, 4]), (0, [])):
        tried: list[int] = []
        kept: dict[int, Cost] = {}

        def make(n: int, limit: int = limit, tried: list[int] = tried) -> Cost | None:
            tried.append(n)
            return Cost(float(n), {"hbm": float(n)}) if n <= limit else None

        assert rising((1, 8, 32), (1, 2, 4, 8, 16, 32), make, kept.__setitem__) == made == list(kept)
        assert len(tried) == len(set(tried))


def test_what_is_kept_is_not_compiled_again(found: Comparison, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr("headrace.tools.predict.predicting.predict", never)
    again = compare(QUESTION, kept)
    assert again.rows() == found.rows()
    entries = json.loads(kept.read_text())["predictions"].values()
    assert {one["conditions"]["mode"] for one in entries} == {"prefill", "decode"} and len(entries) == 6
    faster = replace(QUESTION, system=System("sn50", 2, changed={"launch.hardware": 1e-9}))
    with pytest.raises(AssertionError, match="compiled again"):
        compare(faster, kept)


def test_a_file_that_keeps_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(CompileError, match="holds no predictions"):
        compare(QUESTION, tmp_path / "x.json")


def test_what_the_compiler_refuses_is_told_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def partly(*given: Any, batch: int, **options: Any) -> Any:
        if batch == 4:
            raise CompileError("no-fit", "too large")
        return predict(*given, batch=batch, **options)

    monkeypatch.setattr("headrace.tools.predict.predicting.predict", partly)
    found = compare(QUESTION)
    assert {batch for batch, _ in found.ours} == {1, 2}  # the largest below the one that is refused
    assert [x for x in found.refused if "decode of 4 x 16: too large" in x]


def test_without_prompts_there_are_figures_of_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    def partly(config: Any, system: Any, mode: Any, **options: Any) -> Any:
        if mode == "prefill":
            raise CompileError("no-fit", "too large")
        return predict(config, system, mode, **options)

    monkeypatch.setattr("headrace.tools.predict.predicting.predict", partly)
    found = compare(QUESTION)
    assert found.ratio("user", 1, 16) is not None
    assert found.ratio("first", 1, 16) is None and found.ratio("served", 1, 16) is None
    assert "too large" in against_page(found) and all(
        row["first"] is None for row in found.rows() if row["side"] == "rdu"
    )


def test_what_was_refused_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def partly(config: Any, system: Any, mode: Any, **options: Any) -> Any:
        calls.append(mode)
        if mode == "prefill":
            raise CompileError("no-fit", "too large")
        return predict(config, system, mode, **options)

    monkeypatch.setattr("headrace.tools.predict.predicting.predict", partly)
    first = compare(QUESTION, tmp_path / "kept.json")
    count = len(calls)
    assert compare(QUESTION, tmp_path / "kept.json").refused == first.refused and len(calls) == count


def test_bounds_and_seconds_between_two_costs() -> None:
    low, high = Cost(1.0, {"hbm": 1.0}), Cost(4.0, {"hbm": 1.0, "launch": 3.0})
    assert blend(low, high, 0.5, True).seconds == pytest.approx(2.0)
    assert blend(low, high, 0.5, False).seconds == pytest.approx(2.5)
    assert sum(blend(low, high, 0.5, True).bounds.values()) == pytest.approx(2.0)
    decode = {(1, 100): low, (4, 100): high, (1, 300): high, (4, 300): Cost(16.0, {"hbm": 16.0})}
    inside = interpolated(decode, 2, 200)
    assert inside is not None and inside.seconds == pytest.approx((2.0 + 8.0) / 2)
    assert interpolated(decode, 8, 100) is None and interpolated(decode, 1, 400) is None
    assert interpolated({}, 1, 1) is None
    prompt = prompt_at({100: low, 400: high}, 200)
    assert prompt is not None and prompt.seconds == pytest.approx(2.0)
    assert prompt_at({100: low}, 50) is None


def test_which_are_compiled() -> None:
    assert chosen((1, 2, 4, 8, 16), (1, 8, 32)) == (1, 8, 16)
    assert chosen((3,), (1, 8)) == (3,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "fp16"}, "no precision 'fp16' for both sides"),
        ({"gpu_numbers": "fp7"}, "no precision 'fp7' of GPUs"),
        ({"batches": (4, 2)}, "batches .4, 2. do not rise"),
        ({"lengths": ()}, "lengths .. do not rise"),
        ({"gpus": 9}, "not in one node"),
        ({"times": 0.0}, "each above 0"),
        ({"gpu": "a100"}, "there is no GPU 'a100'"),
        ({"model": "tony"}, "did you mean 'tiny'"),
        ({"model": "llama-3.1-405b", "gpu": "h100", "gpus": 2}, "does not fit: 8"),
    ],
)
def test_questions_that_make_no_sense(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compare(replace(QUESTION, **changes))


def test_models_by_name_and_by_file(tmp_path: Path) -> None:
    assert named_model("tiny")[1:] == (sizes_of(PRESETS["tiny"]), PRESETS["tiny"])
    name, config, source = named_model("minimax-m2")
    assert (name, config.experts, source["model_type"]) == ("minimax-m2", 256, "minimax_m2")
    given = {
        "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
        "intermediate_size": 128, "vocab_size": 100,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(given))
    assert named_model(str(tmp_path / "config.json"))[1].layers == 2
