"""The lit suite: `lit test` runs every .mlir file under test/, `lit -v FILE` one of them."""

# ruff: noqa: F821
# pyright: reportUndefinedVariable=false
import os
import sys

here = os.path.dirname(__file__)
sys.path.insert(0, here)
os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])  # of lit's workers
for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[threads] = "1"

from lit_format import ForkedFormat  # noqa: E402

config.name = "headrace"
config.test_source_root = here
config.test_exec_root = os.path.join(here, "..", "build", "lit")
config.suffixes = [".mlir"]
config.excludes = ["Inputs", "data"]
config.test_format = ForkedFormat(cold=bool(lit_config.params.get("cold")))
