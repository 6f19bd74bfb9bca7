"""Hand-written programs: the merged plan, the literal executor and NumPy agree."""

from __future__ import annotations

import numpy as np
import pytest
from programs import CASES

from headrace.runtime.check import check_program
from headrace.runtime.plan import bind_program


@pytest.mark.parametrize("literal", [False, True], ids=["merged", "literal"])
@pytest.mark.parametrize("name", list(CASES))
def test_agrees_with_numpy(name: str, literal: bool) -> None:
    case = CASES[name]()
    check_program(case.program)
    plan = bind_program(case.program, case.array, literal_only=literal)
    for _ in range(2):  # nothing is left over from an earlier run
        for port in case.program.inputs:
            plan.regions[port.region][...] = case.inputs[port.name].ravel()
        plan.run()
        for port in case.program.outputs:
            found = plan.regions[port.region].reshape(port.type.shape)
            np.testing.assert_allclose(found, case.expected[port.name], rtol=1e-5, atol=1e-5)
