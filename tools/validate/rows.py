"""Published results as data: what was measured, under which conditions, and how near a prediction must come.

Kinds: `ID` an identity, which only tests that inputs and units are right; `FIT` was used to set a constant, so that it
cannot count as a pass; `RANGE` only a range is published; `HO` held out, nothing was set by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.dialects.support.diagnostics import CompileError, nearest

Kind = Literal["ID", "FIT", "RANGE", "HO"]
KINDS: dict[Kind, str] = {
    "ID": "identities: they test that inputs and units are right, and nothing else",
    "FIT": "fitted: a constant was set by them, so that they cannot count as a pass",
    "RANGE": "ranges: only a range is published",
    "HO": "held out: nothing was set by them",
}


@dataclass(frozen=True)
class Range:
    """A published range, ends included; None is open."""

    low: float | None
    high: float | None

    def __str__(self) -> str:
        if self.low is None:
            return f"≤ {self.high:g}"
        return f"≥ {self.low:g}" if self.high is None else f"{self.low:g} … {self.high:g}"


@dataclass(frozen=True)
class Row:
    """One published figure. `relative` and `points` say how far a prediction may lie from it: by what share of it, or
    in its own unit; a range is kept, and without either it is only reported. `missing` says why there is no prediction,
    and which fact it would take. `vintage` is the software that the figure is from."""

    id: str
    workload: str
    metric: str
    unit: str
    published: float | Range
    conditions: str
    kind: Kind
    source: str
    vintage: str
    relative: float | None = None
    points: float | None = None
    missing: str = ""

    def error(self, predicted: float) -> float:
        """(predicted - published) / published; for a range against its nearer end, and 0 inside of it."""
        if not isinstance(self.published, Range):
            return predicted / self.published - 1
        low, high = self.published.low, self.published.high
        if low is not None and predicted < low:
            return predicted / low - 1
        return predicted / high - 1 if high is not None and predicted > high else 0.0

    def within(self, predicted: float) -> bool | None:
        """Whether a prediction is as near as it must be; None when nothing is asked."""
        if isinstance(self.published, Range):
            return self.error(predicted) == 0
        if self.points is not None:
            return abs(predicted - self.published) <= self.points + 1e-12
        return None if self.relative is None else abs(self.error(predicted)) <= self.relative + 1e-12

    @property
    def tolerance(self) -> str:
        """In words."""
        if isinstance(self.published, Range):
            return "inside"
        if self.points is not None:
            return f"±{self.points:g} {self.unit}"
        return "reported only" if self.relative is None else f"±{self.relative:.1%}" if self.relative else "exact"


PLASTICINE = "ISCA'17, 10.1145/3079856.3080256"
SN40L = "arXiv 2405.07518 (MICRO'24)"
HC24 = "Hot Chips 2024, SN40L"
HC26 = "Hot Chips 2026, Dataflow at Scale: the SN50 RDU"
CS149 = "Stanford CS149 Fall 2025, lecture 12; Hot Chips 2026"
TUTORIAL = "PlasticineTutorial b8ee92b, report of its model analyser"
LOOPING = "arXiv 2410.23668"
ANALYSIS = "Artificial Analysis, as quoted 2026-07-07"
UNKNOWN_FPGA = "the published ratio needs the time of the FPGA: a model of Stratix V, or its published seconds"

ROWS: tuple[Row, ...] = (
    Row("1.plasticine", "peak rate, plasticine", "peak", "TFLOP/s", 12.3, "fp32", "ID", PLASTICINE, "2017", 0.005),
    Row("1.sn10", "peak rate, sn10", "peak", "TFLOP/s", Range(300, None), "bf16", "ID", "Hot Chips 33", "2021"),
    Row("1.sn40l", "peak rate, sn40l", "peak", "TFLOP/s", 638, "bf16", "ID", SN40L, "2024", 0.005),
    Row("1.sn50", "peak rate, sn50", "peak", "TFLOP/s", 1593, "bf16", "ID", CS149, "2025", 0.005),
    *(
        Row(
            f"2.{way}",
            "Monarch FFT",
            f"operational intensity, {way}",
            "FLOP/B",
            value,
            "Table I; sizes are not published, and chosen such that all three come out",
            "ID",
            SN40L,
            "2024",
            0.02,
        )
        for way, value in (("unfused", 39.5), ("gemm0-mul-transpose", 102.6), ("fused", 410.4))
    ),
    Row(
        *("3.throughput", "SqueezeNet estimate", "samples per second", "1/s", 11800),
        "from the stage time of 85 us: arithmetic of pipelines",
        *("ID", TUTORIAL, "2019", 0.1),
    ),
    Row(
        *("3.latency", "SqueezeNet estimate", "latency", "ms", 1.8),
        "from the stage time of 85 us and 21 stages: arithmetic of pipelines",
        *("ID", TUTORIAL, "2019", 0.1),
    ),
    Row(
        *("3.stage", "SqueezeNet estimate", "time of the slowest stage", "us", 85.0, "64 compute units"),
        *("HO", TUTORIAL, "2019", 0.1),
        missing="the configuration is not the published chip (125 memory units of 64), and batch and clock are not "
        "stated: it would take the parameters that the analyser was run with",
    ),
    Row("4.gemm", "GEMM", "Plasticine over Stratix V", "x", 33.0, "-", "HO", PLASTICINE, "2017", 0.3,
        missing=UNKNOWN_FPGA),
    Row("4.cnn", "CNN", "Plasticine over Stratix V", "x", 95.1, "-", "HO", PLASTICINE, "2017", 0.3,
        missing=UNKNOWN_FPGA),
    Row(
        *("4.innerproduct", "inner product", "Plasticine over Stratix V", "x", 1.4),
        "the FPGA at its 37.5 GB/s",
        *("HO", PLASTICINE, "2017", 0.3),
    ),
    Row(
        *("5", "FlashFFTConv, 1M points", "fused over unfused", "x", 13.0),
        "1 x sn40l; batch, channels and factors are not published: 64 channels and two factors of 1024 are assumed",
        *("HO", SN40L, "2024", 0.25),
    ),
    Row(
        *("6", "Llama-2-7B prefill", "fused over unfused, both launched by the host", "x", Range(1.5, 3)),
        "8 x sn40l, 4096 tokens, batch 1, bf16",
        *("RANGE", SN40L, "2024"),
    ),
    Row(
        *("6.decode", "Llama-2-7B decode", "fused over unfused, both launched by the host", "x", Range(1, 13)),
        "8 x sn40l, context 4096, batch 1, bf16",
        *("RANGE", SN40L, "2024"),
    ),
    Row(
        *("7.decode", "Llama-2-7B decode", "launched by the chip over by the host", "x", Range(1.4, 8)),
        "8 x sn40l, context 4096, batch 1, bf16",
        *("RANGE", SN40L, "2024"),
    ),
    Row(
        *("7.prefill", "Llama-2-7B prefill", "launched by the chip over by the host", "x", Range(1, 1.1)),
        "8 x sn40l, 4096 tokens, batch 1, bf16",
        *("RANGE", SN40L, "2024"),
    ),
    Row(
        *("8.prefill", "Llama-2-7B prefill", "launches, unfused over fused", "x", 11.0),
        "8 x sn40l, 4096 tokens, batch 1, bf16",
        *("HO", SN40L, "2024", 0.15),
    ),
    Row(
        *("8.decode", "Llama-3.1-8B decode", "launches per token", "launches", 3.0),
        "16 x sn40l, context 8192, batch 1, bf16",
        *("HO", "Stanford CS149 Fall 2025, lecture 12", "2025", 0.0),
    ),
    Row(
        *("9.a100", "model switch, Llama-2-7B", "DGX A100 over sn40l", "x", 31.0),
        "8 x sn40l at 1 TB/s from DDR to HBM, host to GPU at 32 GB/s",
        *("ID", SN40L, "2024", 0.1),
    ),
    Row(
        *("9.h100", "model switch, Llama-2-7B", "DGX H100 over sn40l", "x", 15.0),
        "8 x sn40l at 1 TB/s from DDR to HBM, host to GPU at 64 GB/s",
        *("ID", SN40L, "2024", 0.1),
    ),
    Row(
        *("9.8b", "model switch, Llama-3.1-8B", "time", "ms", 10.0),
        "16 x sn40l at 1.6 TB/s from DDR to HBM",
        *("ID", HC24, "2024", 0.1),
    ),
    Row(
        *("10", "Llama-3.1-8B decode", "tokens per second per user", "1/s", 1042.0),
        "16 x sn40l, context 8192, batch 1, bf16; no speculation is mentioned",
        *("FIT", SN40L, "2024", 0.15),
    ),
    Row(
        *("11", "Llama-3-8B decode", "tokens per second per user", "1/s", 430.0),
        "8 x sn40l, context 4096, batch 1, bf16",
        *("HO", "LanceDB blog, 2024-05-01", "early 2024: before the software of row 10", 0.25),
    ),
    Row(
        *("12.70b", "Llama-3.1-70B decode", "tokens per step that 457 tokens/s would take", "tokens", Range(1, 9)),
        "16 x sn40l, context 8192, batch 1, bf16; with speculation, at most 9 (sd9 in names of compiled models)",
        *("RANGE", SN40L, "2024"),
    ),
    Row(
        *("12.405b", "Llama-3.1-405B decode", "tokens per step that 129 tokens/s would take", "tokens", Range(1, 11)),
        "16 x sn40l, context 8192, batch 1, bf16; with speculation, at most 11 (sd11 in names of compiled models)",
        *("RANGE", SN40L, "2024"),
    ),
    *(
        Row(
            f"13.{sockets}",
            "GEMM 16 x 24576 x 131072 x 8192, K cut",
            "share of the peak",
            "%",
            share,
            f"{sockets} x sn50, bf16, partial sums reduced and scattered",
            "FIT" if sockets == 8 else "HO",
            CS149,
            "2025",
            points=5,
        )
        for sockets, share in ((8, 72.0), (16, 75.0), (32, 79.0))
    ),
    Row(
        *("14", "DeepSeek-R1 decode", "tokens per second per user", "1/s", 198.0),
        "16 x sn40l; context 8192, batch 1 and weights in f8e4m3 are assumed, speculation is not stated",
        *("HO", "DAC'25 abstract 62DAC SSSN027", "2025: after the software of row 10", 0.25),
    ),
    Row(
        *("15a", "MiniMax-M2.7 decode", "tokens per second per user", "1/s", 482.0),
        "16 x sn40l, context 10240, batch 1; weights in f8e4m3 are assumed, speculation is not stated",
        *("FIT", ANALYSIS, "2026", 0.2),
    ),
    Row(
        *("15b", "MiniMax-M2.7 decode", "tokens per second per user", "1/s", 763.0),
        "16 x sn50, context 10240, batch 1; weights in f8e4m3 are assumed, speculation is not stated",
        *("HO", ANALYSIS, "2026", 0.2),
    ),
    Row(
        *("16", "MiniMax-M2.7 decode", "tokens per second per user, TP8+DP8 over TP16", "x", 0.5),
        "sn50; context 10240 and batch 8 over 64 sockets are assumed",
        *("HO", "vendor, before official publication, 2026-07-30", "2026", 0.2),
    ),
    *(
        Row(
            f"17.{sockets}",
            "DeepSeek-R1 decode",
            "tokens per second per user",
            "1/s",
            float(rate),
            f"{sockets} x sn50, 8192 tokens in, 1024 out, 3.1 tokens per step; a projection of the vendor, no silicon",
            "HO",
            HC26,
            "2026",
            missing="only reported, as it is a model itself; batch and mapping are not stated",
        )
        for sockets, rate in ((64, 200), (128, 300), (256, 500))
    ),
    Row(
        *("18", "BERT-Large training step", "samples per second", "1/s", 665.88),
        "2 x sn10, local batch 1024; 128 tokens are assumed",
        *("HO", "ai-testbed-userdocs, 2022-11-28", "2022", 0.25),
        missing="the compiler refuses the step: as under autocast for a layer norm of mixed types, and in fp32 because "
        "the optimizer's step for the table of words (30522 x 1024) needs more than the chip",
    ),
    Row(
        *("19", "Llama-3.1-8B decode", "looped over launched by the chip, layer by layer", "x", Range(1, 2.2)),
        "16 x sn40l, context 4096, batch 1, bf16",
        *("RANGE", LOOPING, "2024"),
    ),
)  # fmt: skip
"""Rows in the order of the numbers before their points, which are those of the published table."""


def row_of(name: str) -> Row:
    """A row by its id. `CompileError` lists those there are."""
    for row in ROWS:
        if row.id == name:
            return row
    names = [row.id for row in ROWS]
    raise CompileError(
        "bad-option", f"there is no row '{name}'", fix=f"{nearest(name, names)}; rows: {', '.join(names)}"
    )


def kinds_from_text(text: str) -> tuple[Kind, ...]:
    """Kinds of `ID,FIT`; `CompileError` for another."""
    found: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind in text.split(","))
    for name in text.split(","):
        if name not in KINDS:
            raise CompileError("bad-option", f"there is no kind '{name}'", fix=f"kinds: {', '.join(KINDS)}")
    return found


__all__ = ["KINDS", "ROWS", "Kind", "Range", "Row", "kinds_from_text", "row_of"]
