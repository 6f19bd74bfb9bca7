"""Names of values that are computed from weights."""

import numpy as np
import pytest

from headrace.dialects.tensor.storage import LiteralAttr
from headrace.passes.analysis.derived import _number  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("value", [0.1, -0.0, np.inf, np.finfo(np.float32).max, np.finfo(np.float32).min, 1e-45])
def test_a_number_reads_back(value: float) -> None:
    array = np.array(value, np.float32)
    assert np.float32(float(_number(LiteralAttr.from_array(array)))).tobytes() == array.tobytes()
