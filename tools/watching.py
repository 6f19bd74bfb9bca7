"""What `headrace compile` and `headrace-opt` show of the passes that they run: IR, tables, dumps and a trace.

The trace is Chrome's trace-event JSON, which https://ui.perfetto.dev and chrome://tracing open.
"""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.printer import Printer

from headrace.dialects.support.diagnostics import CompileError
from headrace.passes.infra.manager import ALL, Record, Watch, statistics_table, timing_table


@dataclass
class Watching:
    """The options of both commands on looking at passes."""

    verify_each: bool = False
    timing: bool = False
    statistics: bool = False
    trace: str | None = None
    dump_phases: str | None = None
    dump_passes: str | None = None
    print_ir_before: Sequence[str] = ()
    print_ir_after: Sequence[str] = ()
    print_ir_before_all: bool = False
    print_ir_after_all: bool = False
    print_ir_after_change: bool = False
    print_pipeline: bool = False
    print_op_generic: bool = False
    print_debuginfo: bool = False
    stream: TextIO | None = None
    """Where IR and tables go; standard error when None."""
    part: str = ""
    """A folder inside the folders of dumps."""

    def __post_init__(self) -> None:
        if self.trace is not None:
            from headrace.compiler import check_writable

            check_writable(self.trace)
        self._phases = Dump(self.dump_phases, "--dump-phases", self.part) if self.dump_phases else None
        self._passes = Dump(self.dump_passes, "--dump-passes", self.part) if self.dump_passes else None

    @property
    def watch(self) -> Watch:
        """What the pass manager is to look at."""
        return Watch(
            verify_each=self.verify_each,
            measure=self.timing or self.statistics or self.trace is not None,
            before=frozenset([ALL] if self.print_ir_before_all else self.print_ir_before),
            after=frozenset([ALL] if self.print_ir_after_all else self.print_ir_after),
            after_change=self.print_ir_after_change,
            generic=self.print_op_generic,
            debuginfo=self.print_debuginfo,
            stream=self.stream,
            dump=self._passes.change if self._passes else None,
        )

    def on_phase(self, name: str, module: ModuleOp) -> None:
        """To be called with the module before the first phase and after each."""
        if self._phases is not None:
            self._phases.phase(name, module)

    def report(
        self,
        steps: Iterable[tuple[str, float]],
        spans: Iterable[tuple[str, float, float]],
        records: Sequence[Record],
    ) -> None:
        """Print the tables and write the trace: CPU seconds by step, the steps on the wall clock, and the passes."""
        out = self.stream or sys.stderr
        if self.timing:
            print(timing_table(records, steps), file=out)
        if self.statistics:
            print(statistics_table(records), file=out)
        if self.trace is not None:
            write_trace(self.trace, spans, records)


def text_of(module: ModuleOp, generic: bool = False, debuginfo: bool = True) -> str:
    """The text of a module, with an end of line."""
    out = io.StringIO()
    Printer(out, print_generic_format=generic, print_debuginfo=debuginfo).print_op(module)
    return out.getvalue() + "\n"


class Dump:
    """Writes IR into a folder, with locations and the passes that it has been through, so that each file can be gone on
    from. `CompileError` when it cannot be written; `flag` is named then."""

    def __init__(self, folder: str, flag: str, part: str = "") -> None:
        self.folder, self.flag = Path(folder, part), flag
        self.number = 0
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._refusal(error) from None

    def phase(self, name: str, module: ModuleOp) -> None:
        """Write what a phase left: `0.import.mlir`, `1.tensor.mlir`, …"""
        self._write(f"{self.number}.{name}", module)
        self.number += 1

    def change(self, number: int, one: ModulePass, module: ModuleOp) -> None:
        """Write what a pass left that changed something: `07.simplify-views.mlir` after the seventh pass."""
        self._write(f"{number:02}.{one.name}", module)

    def _write(self, name: str, module: ModuleOp) -> None:
        try:
            (self.folder / f"{name}.mlir").write_text(text_of(module), encoding="utf-8")
        except OSError as error:
            raise self._refusal(error) from None

    def _refusal(self, error: OSError) -> CompileError:
        return CompileError("cannot-write", f"{self.flag} {self.folder}: {error.strerror}", fix="name another folder")


def write_trace(path: str, spans: Iterable[tuple[str, float, float]], records: Sequence[Record]) -> None:
    """Write a trace of steps (name, begin and end in seconds) and passes. `CompileError` when it cannot be written."""
    import json

    from headrace.dialects.support.files import write_text

    write_text(path, json.dumps({"traceEvents": list(trace_events(spans, records)), "displayTimeUnit": "ms"}) + "\n")


def trace_events(spans: Iterable[tuple[str, float, float]], records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """The events of a trace: steps as slices, passes as slices inside them with what they did as arguments, and the
    ops of each dialect as counters."""
    steps = list(spans)
    zero = min([begin for _, begin, _ in steps] + [record.begin for record in records], default=0.0)

    def at(seconds: float) -> float:
        return round((seconds - zero) * 1e6, 1)

    for name, text in (("process_name", "headrace"), ("thread_name", "compiler")):
        yield {"ph": "M", "pid": 1, "tid": 1, "name": name, "args": {"name": text}}
    for name, begin, end in steps:
        yield {
            "ph": "X", "pid": 1, "tid": 1, "cat": "step", "name": name, "ts": at(begin), "dur": at(end) - at(begin),
        }  # fmt: skip
    for record in records:
        yield {
            "ph": "X",
            "pid": 1,
            "tid": 1,
            "cat": "pass",
            "name": record.spec.partition("{")[0],
            "ts": at(record.begin),
            "dur": round(record.wall * 1e6, 1),
            "args": arguments_of(record),
        }
    previous: dict[str, int] = {}
    for number, record in enumerate(records):
        if number == 0:
            before = Counter(record.ops)
            before.subtract(record.delta)
            yield from _counters(at(record.begin), before, previous)
        yield from _counters(at(record.begin + record.wall), record.ops, previous)


def _counters(time: float, ops: Mapping[str, int], previous: dict[str, int]) -> Iterator[dict[str, Any]]:
    """A counter event for each dialect whose number of ops is another than before."""
    now = Counter[str]()
    for name, count in ops.items():
        now[name.partition(".")[0]] += count
    for dialect in sorted({*now, *previous}):
        if now[dialect] != previous.get(dialect, 0):
            previous[dialect] = now[dialect]
            yield {
                "ph": "C", "pid": 1, "tid": 1, "name": f"{dialect} ops", "ts": time, "args": {"ops": now[dialect]},
            }  # fmt: skip


def arguments_of(record: Record) -> dict[str, Any]:
    """What a pass did, as arguments of its slice."""
    found: dict[str, Any] = {
        "pipeline": record.spec,
        "changed": record.changed,
        "cpu_ms": round(record.seconds * 1e3, 3),
    }
    if record.ops:
        found |= {"ops": record.ops_after, "more_ops": record.ops_after - record.ops_before}
    parts = {"delta": record.delta, "statistics": record.statistics, "rewrites": record.rewrites}
    return found | {name: dict(part) for name, part in parts.items() if part}
