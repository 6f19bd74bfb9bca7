"""Benchmarks of Headrace against its peers.

python -m headrace.tools.bench execute --models DIR     runtime speed against ONNX Runtime
python -m headrace.tools.bench compile --models DIR     cold compile time against IREE
python -m headrace.tools.bench depth                    growth of compile time with the number of layers
python -m headrace.tools.bench growth                   growth of each pass's time with the size of a program
python -m headrace.tools.bench ir                       parsing, printing and verifying IR against plain xDSL
python -m headrace.tools.bench watch                    what it costs to watch passes
python -m headrace.tools.bench mapping                  what each search of the mapping is worth
python -m headrace.tools.bench place                    sections that fill the chip: CPU time and quality
"""

from __future__ import annotations

import argparse
import sys

from headrace.tools.bench import compiling, depth, executing, growth, ir, mapping, placing, watching


def main(arguments: list[str] | None = None) -> int:
    """Entry point. Exit code 0 when every requested figure was measured and no gate failed, 1 otherwise."""
    parser = argparse.ArgumentParser(
        prog="headrace.tools.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    executing.add_command(commands)
    compiling.add_command(commands)
    depth.add_command(commands)
    growth.add_command(commands)
    ir.add_command(commands)
    watching.add_command(commands)
    mapping.add_command(commands)
    placing.add_command(commands)
    options = parser.parse_args(arguments)
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
