"""`headrace validate`: predictions against published results."""

from __future__ import annotations

import sys

import click

from headrace.tools.cli import common


@click.command("validate")
@click.option("--kinds", default="ID,FIT,RANGE,HO", metavar="KIND,…", help="Only rows of these kinds. [default: all]")
@click.option("--row", "only", multiple=True, metavar="ID", help="Only this row; may be repeated.")
@click.option("--list", "listing", is_flag=True, help="List the rows, and predict nothing.")
@click.option("--write", metavar="FILE.md", help="Write the tables as Markdown.")
@click.option("--html", metavar="FILE.html", help="Write a page with plots that needs no other file.")
@common.json_option
def command(
    kinds: str, only: tuple[str, ...], listing: bool, write: str | None, html: str | None, as_json: bool
) -> None:
    """Predict published results by compiling their workloads, and print predictions with their errors.

    Kinds: ID (identities), FIT (a constant was set by them), RANGE (only a range is published), HO (held out). They are
    reported by themselves. A row that public data does not allow to predict is listed with what is missing.
    """
    from headrace.compiler import check_writable
    from headrace.dialects.support.files import write_text
    from headrace.tools.validate import ROWS, Outcome, Row, kinds_from_text, row_of, validate

    chosen = kinds_from_text(kinds)
    for name in only:
        row_of(name)
    if listing:
        rows = [x for x in ROWS if x.kind in chosen and (not only or x.id in only)]
        if as_json:
            common.print_json([Outcome(x, None, x.missing).to_json() for x in rows])
        else:
            lines = [("row", "kind", "published", "workload", "source")]
            lines += [(x.id, x.kind, f"{x.published} {x.unit}", f"{x.workload}: {x.metric}", x.source) for x in rows]
            click.echo(common.table(lines, 5))
        return
    for path in (write, html):
        if path is not None:
            check_writable(path)

    def progress(row: Row) -> None:
        print(f"{row.id}: {row.workload}, {row.metric}", file=sys.stderr, flush=True)

    found = validate(chosen, only, progress=progress if sys.stderr.isatty() else None)
    if write is not None:
        write_text(write, found.markdown())
    if html is not None:
        write_text(html, found.html())
    if as_json:
        common.print_json(found.to_json())
    elif write is None and html is None:
        click.echo(found.markdown(), nl=False)
