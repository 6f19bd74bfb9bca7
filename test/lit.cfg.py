"""The lit suite: `lit test` runs every .mlir file under test/ with real processes."""

# ruff: noqa: F821
# pyright: reportUndefinedVariable=false
import os
import sys

import lit.formats

config.name = "headrace"
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.test_source_root, "..", "build", "lit")
config.suffixes = [".mlir"]
config.excludes = ["Inputs", "data"]
config.environment["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    config.environment[threads] = "1"
config.test_format = lit.formats.ShTest(execute_external=False)  # lit's own shell: no bash per test
