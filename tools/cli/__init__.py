"""The subcommands of `headrace`, each in the file of its name and loaded when it is used.

Exit codes: 0 ok, 1 a comparison failed or Headrace has a bug, 2 bad usage or bad input. Results go to standard output,
errors and progress to standard error. With `--json` standard output holds one JSON document, also for errors.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

COMMANDS = {
    "plan": "what would become of every op of a model: supported, decomposed or refused",
    "compile": "compile a model for a device and write the artifact",
    "run": "run an artifact on inputs",
    "compare": "run a model at every level and compare with a reference",
    "audit": "check a routed program from its units, flows and routes alone",
    "why": "what became of an op of a model, pass by pass, and why",
    "bisect": "the pass, and the one rewrite of it, with which a model fails",
    "reduce": "make a model that fails as small as it gets",
    "bench": "latency and throughput of an artifact",
    "validate": "predictions held against published results",
    "decoder": "write a decoder-only transformer of a given size as IR",
    "devices": "the devices, and every number of one with its source",
    "demo": "compile, run, compare and profile a small attention model",
}
"""Name of a subcommand → one line of help. `headrace.tools.cli.<name>` defines it as `command`."""

ONE_THREAD = ("compile", "bench", "validate")
"""Subcommands that keep NumPy to one thread unless the environment says otherwise: the bytes of a derived weight must
not depend on the number of cores, and neither must a latency."""


class Commands(click.Group):
    """Loads a subcommand when it is used; listing them loads none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return import_module(f"headrace.tools.cli.{cmd_name}").command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from headrace.dialects.support.diagnostics import nearest

            raise click.UsageError(f"there is no command '{args[0]}'; {nearest(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        from headrace.version import VERSION

        click.echo(f"headrace {VERSION}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
def cli() -> None:
    """Compile neural networks for reconfigurable dataflow units, and run them.

    `headrace COMMAND --help` explains a command.
    """


def execute(argv: Sequence[str], reproducers: bool = False) -> int:
    """Run the command line; the exit code. Raises nothing. With `reproducers` failures are written to a folder for
    temporary files unless told otherwise."""
    as_json = "--json" in argv
    if argv and argv[0] in ONE_THREAD:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # read when NumPy is loaded
            os.environ.setdefault(name, "1")
    try:
        result = cli.main(list(argv), prog_name="headrace", standalone_mode=False, obj=reproducers)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return 2
    except click.ClickException as error:
        where = f"{error.ctx.command_path}: " if isinstance(error, click.UsageError) and error.ctx else "headrace: "
        print(f"{where}error: {error.format_message()}", file=sys.stderr)
        if isinstance(error, click.UsageError) and error.ctx:
            print(f"`{error.ctx.command_path} --help` explains the command.", file=sys.stderr)
        return _report_json([{"code": "usage", "what": error.format_message()}], 2, as_json)
    except BrokenPipeError:
        # Whoever read our output has gone; keep the interpreter from complaining when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except (KeyboardInterrupt, click.exceptions.Abort):
        print("headrace: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        code = _failed(error, as_json)
        for note in getattr(error, "__notes__", ()):
            if note.startswith("reproducer: "):
                print(note, file=sys.stderr)
        return code


def _failed(error: Exception, as_json: bool) -> int:
    """Report what a command raised: a refusal, or a bug of ours."""
    from headrace.dialects.support.diagnostics import CompileError

    if isinstance(error, CompileError):
        for one in error.diagnostics:
            print(f"headrace: {one}", file=sys.stderr)
        return _report_json([one.to_json() for one in error.diagnostics], 2, as_json)
    from headrace.passes.infra.manager import PassBug

    if isinstance(error, PassBug):
        print("\n".join(filter(None, [f"headrace: internal error: {error}", error.trace()])), file=sys.stderr)
        return _report_json([error.to_json()], 1, as_json)
    import traceback

    print("headrace: internal error; please report it with the model and this trace", file=sys.stderr)
    traceback.print_exception(error, file=sys.stderr)
    return _report_json([{"code": "internal-error", "what": f"{type(error).__name__}: {error}"}], 1, as_json)


def _report_json(errors: list[dict[str, str]], code: int, as_json: bool) -> int:
    if as_json:
        import json

        print(json.dumps({"errors": errors}, indent=1))
    return code
