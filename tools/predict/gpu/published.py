"""The model of GPUs against published figures: each row with its conditions, our prediction, and the error.

    python -m headrace.tools.predict.gpu                # the table
    python -m headrace.tools.predict.gpu --fit          # constants from the rows of kind FIT, and nothing else

Constants are set by the rows of kind FIT, each by one; everything else is held out.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import resources
from typing import Any, cast

from headrace.dialects.support.diagnostics import CompileError
from headrace.tools.predict.gpu.facts import Gpu, load_gpu
from headrace.tools.predict.gpu.serving import Served, serve
from headrace.tools.predict.gpu.sizes import Sizes
from headrace.tools.predict.gpu.step import NUMBERS, Layout, Numbers

MOST = 4096
"""Most requests that are under way where there is no other limit."""


@dataclass(frozen=True)
class Row:
    """One published figure. `layout` is "tensor", "expert" or "data" (attention by sequences, experts dealt out)."""

    model: str
    gpu: str
    numbers: str
    metric: str
    prompt: int
    output: int
    published: float
    source: str
    gpus: int = 0
    requests: int = 0
    user: float = 0.0
    cache: str = ""
    layout: str = "tensor"
    kind: str = "HO"
    sets: str = ""
    note: str = ""

    @property
    def types(self) -> Numbers:
        """The precision."""
        found = NUMBERS[self.numbers]
        return found.with_cache(self.cache) if self.cache else found

    @property
    def conditions(self) -> str:
        """What the figure was measured under, in a line."""
        gpus = f"{self.gpus} x " if self.gpus else ""
        load = f"{self.requests} requests, " if self.requests else f"{self.user:g} tok/s a user, " if self.user else ""
        return f"{gpus}{self.gpu}, {self.numbers}, {load}{self.prompt} in, {self.output} out"


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads((resources.files("headrace.tools.predict.gpu") / "published.toml").read_text("utf-8"))


@cache
def published_models() -> dict[str, Sizes]:
    """Sizes of the models that rows are about."""
    return {name: Sizes(name=name, **sizes) for name, sizes in _data()["models"].items()}


@cache
def published_rows() -> tuple[Row, ...]:
    """All rows, in order."""
    names = {one.name for one in fields(Row)}
    found: list[Row] = []
    for group in cast("list[dict[str, Any]]", _data()["sets"]):
        shared = {key: value for key, value in group.items() if key in names}
        found += [Row(**{**shared, **row}) for row in group["rows"]]
    return tuple(found)


def layouts(gpus: int, experts: bool) -> tuple[Layout, ...]:
    """The layouts of a model on so many GPUs."""
    if gpus == 1 or not experts:
        return (Layout(gpus),)
    return (Layout(gpus), Layout(gpus, "tensor", "expert"), Layout(gpus, "data", "expert"))


def layout_of(kind: str, gpus: int) -> Layout:
    """A layout by its word."""
    return {
        "tensor": Layout(gpus),
        "expert": Layout(gpus, "tensor", "expert"),
        "data": Layout(gpus, "data", "expert"),
    }[kind]


def best_requests(speed: float, serving: Callable[[int], Served], most: int = MOST) -> int:
    """The most requests with which each user still has `speed` tokens a second; 0 if not even one has."""
    low, high = 0, 1
    while high <= most and serving(high).user_rate >= speed:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if serving(middle).user_rate >= speed else (low, middle)
    return low


def predicted(row: Row, gpu: Gpu | None = None) -> float:
    """What the model says of a row."""
    config, gpu, types = published_models()[row.model], gpu or load_gpu(row.gpu), row.types

    def served(layout: Layout, requests: int) -> Served:
        return serve(config, gpu, layout, types, requests, row.prompt, row.output)

    if row.metric in ("frontier", "user"):
        found = 0.0
        for n in (1, 2, 4, 8):
            for layout in layouts(n, bool(config.experts)):
                try:
                    if row.metric == "user":
                        found = max(found, served(layout, row.requests).user_rate)
                        continue
                    requests = best_requests(row.user, lambda r, at=layout: served(at, r))
                except CompileError:
                    continue
                if requests:
                    here = served(layout, min(requests, served(layout, MOST).running))
                    found = max(found, here.total_rate / n)
        return found
    got = served(layout_of(row.layout, row.gpus), row.requests or MOST)
    return {
        "between": got.between,
        "first": got.first,
        "output": got.output_rate,
        "share": got.output_rate / row.gpus,
    }[row.metric]


def error_of(row: Row, value: float) -> float:
    """Signed, as a share of what was published."""
    return value / row.published - 1


def changed(gpu: Gpu, path: str, value: float) -> Gpu:
    """The GPU with another value of one number."""
    part, _, name = path.partition(".")
    return replace(gpu, **{part: replace(getattr(gpu, part), **{name: value})})


BOUNDS = {"kernel.ramp": (0.0, 2e-5), "efficiency.products": (0.1, 1.0), "host.sequence": (0.0, 1e-3)}
"""Constants that rows set, and where they are looked for. The file of each GPU has the value found."""


def fit(rounds: int = 8) -> dict[str, float]:
    """Values of the constants with which the rows that set them come out, one after the other until they rest. The
    same values hold for every GPU."""
    rows = [row for row in published_rows() if row.kind == "FIT"]
    values = {row.sets: sum(BOUNDS[row.sets]) / 2 for row in rows}

    def gpu_with(row: Row, given: dict[str, float]) -> Gpu:
        gpu = load_gpu(row.gpu)
        for path, value in given.items():
            gpu = changed(gpu, path, value)
        return gpu

    for _ in range(rounds):
        for row in rows:
            low, high = BOUNDS[row.sets]

            def error(value: float, row: Row = row) -> float:
                return error_of(row, predicted(row, gpu_with(row, {**values, row.sets: value})))

            rising = error(high) > error(low)
            for _ in range(30):
                middle = (low + high) / 2
                low, high = (low, middle) if (error(middle) > 0) == rising else (middle, high)
            values[row.sets] = (low + high) / 2
    return values


def table(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Rows with our prediction, as plain data."""
    found: list[dict[str, Any]] = []
    for row in rows:
        value = predicted(row)
        found.append(
            {
                "model": row.model,
                "metric": row.metric,
                "conditions": row.conditions,
                "published": row.published,
                "predicted": value,
                "error": error_of(row, value),
                "kind": row.kind,
                "sets": row.sets,
                "source": row.source,
                "note": row.note,
            }
        )
    return found


def median_error(rows: Sequence[dict[str, Any]]) -> float:
    """Median of the absolute errors of the rows that are held out."""
    errors = sorted(abs(row["error"]) for row in rows if row["kind"] == "HO")
    middle = len(errors) // 2
    return errors[middle] if len(errors) % 2 else (errors[middle - 1] + errors[middle]) / 2


__all__ = ["Row", "best_requests", "error_of", "fit", "layouts", "median_error", "predicted", "published_models"]
__all__ += ["published_rows", "table"]
