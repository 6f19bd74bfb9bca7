"""Special functions and number helpers that NumPy lacks, vectorised and without SciPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from headrace.dialects.tensor.meaning import Array

NARROW = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn))


def is_floating(dtype: np.dtype[Any]) -> bool:
    """Whether a NumPy dtype is one of our floating-point types (ml_dtypes' are of kind V)."""
    return dtype.kind == "f" or dtype in NARROW


def rounds_to(given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether arrays of a type are taken for another: the same, or a narrower float."""
    return given == wanted or (given.kind == "f" and given.itemsize > 2 and wanted in NARROW)


def wide(x: Array) -> Array:
    """f16, bf16 and f8e4m3 as f32, anything else as it is: composites compute in f32 and round once."""
    return x.astype(np.float32) if x.dtype in NARROW else x


def narrow(x: Array, dtype: np.dtype[Any]) -> Array:
    """Round back to `dtype`; `x` itself when it has that type already."""
    return x.astype(dtype) if x.dtype != dtype else x


def _poly(x: Array, *coefficients: float) -> Array:
    """Σ coefficients[k] · x**k by Horner's rule."""
    total = np.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        total *= x
        total += c
    return total


def erf(x: Array) -> Array:
    """The error function, computed in f64 by Sun's rational approximations (fdlibm; under one ulp in f64), rounded once
    to the type of `x`."""
    flat = np.asarray(x, dtype=np.float64).reshape(-1)
    a = np.abs(flat)
    out = np.where(np.isnan(flat), flat, 1.0)

    at = a < 0.84375
    v = flat[at]
    z = v * v
    out_small = _poly(z, 1.28379167095512558561e-01, -3.25042107247001499370e-01, -2.84817495755985104766e-02,
                      -5.77027029648944159157e-03, -2.37630166566501626084e-05)  # fmt: skip
    out_small /= _poly(z, 1.0, 3.97917223959155352819e-01, 6.50222499887672944485e-02, 5.08130628187576562776e-03,
                       1.32494738004321644526e-04, -3.96022827877536812320e-06)  # fmt: skip
    small, small_values = at, v + v * out_small

    at = (a >= 0.84375) & (a < 1.25)
    s = a[at] - 1.0
    p = _poly(s, -2.36211856075265944077e-03, 4.14856118683748331666e-01, -3.72207876035701323847e-01,
              3.18346619901161753674e-01, -1.10894694282396677476e-01, 3.54783043256182359371e-02,
              -2.16637559486879084300e-03)  # fmt: skip
    q = _poly(s, 1.0, 1.06420880400844228286e-01, 5.40397917702171048937e-01, 7.18286544141962662868e-02,
              1.26171219808761642112e-01, 1.36370839120290507362e-02, 1.19844998467991074170e-02)  # fmt: skip
    out[at] = 8.45062911510467529297e-01 + p / q

    at = (a >= 1.25) & (a < 1 / 0.35)
    v = a[at]
    s = 1.0 / (v * v)
    r = _poly(s, -9.86494403484714822705e-03, -6.93858572707181764372e-01, -1.05586262253232909814e01,
              -6.23753324503260060396e01, -1.62396669462573470355e02, -1.84605092906711035994e02,
              -8.12874355063065934246e01, -9.81432934416914548592e00)  # fmt: skip
    d = _poly(s, 1.0, 1.96512716674392571292e01, 1.37657754143519042600e02, 4.34565877475229228821e02,
              6.45387271733267880336e02, 4.29008140027567833386e02, 1.08635005541779435134e02,
              6.57024977031928170135e00, -6.04244152148580987438e-02)  # fmt: skip
    out[at] = 1.0 - np.exp(-v * v - 0.5625 + r / d) / v

    at = (a >= 1 / 0.35) & (a < 6.0)
    v = a[at]
    s = 1.0 / (v * v)
    r = _poly(s, -9.86494292470009928597e-03, -7.99283237680523006574e-01, -1.77579549177547519889e01,
              -1.60636384855821916062e02, -6.37566443368389627722e02, -1.02509513161107724954e03,
              -4.83519191608651397019e02)  # fmt: skip
    d = _poly(s, 1.0, 3.03380607434824582924e01, 3.25792512996573918826e02, 1.53672958608443695994e03,
              3.19985821950859553908e03, 2.55305040643316442583e03, 4.74528541206955367215e02,
              -2.24409524465858183362e01)  # fmt: skip
    out[at] = 1.0 - np.exp(-v * v - 0.5625 + r / d) / v

    out = np.copysign(out, flat)
    out[small] = small_values
    return out.astype(x.dtype).reshape(x.shape)
