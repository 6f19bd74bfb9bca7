"""NumPy meaning of softmax, the norms and attention: f16 and bf16 are computed in f32 and rounded once."""

from __future__ import annotations

import math

import numpy as np

from headrace.dialects.tensor.meaning import Array, Attrs, means
from headrace.dialects.tensor.meaning.special import narrow, wide


def _softmax(x: Array, axis: int) -> Array:
    with np.errstate(all="ignore"):
        e = np.exp(x - x.max(axis=axis, keepdims=True, initial=-np.inf))
        e /= e.sum(axis=axis, keepdims=True)
    return e


@means("tensor.softmax")
def softmax(attrs: Attrs, x: Array) -> Array:
    """exp(x - max) over its sum along the axis."""
    return narrow(_softmax(wide(x), attrs["axis"]), x.dtype)


@means("tensor.log_softmax")
def log_softmax(attrs: Attrs, x: Array) -> Array:
    """x - max less the logarithm of the sum of its exponentials along the axis."""
    w = wide(x)
    with np.errstate(all="ignore"):
        shifted = w - w.max(axis=attrs["axis"], keepdims=True, initial=-np.inf)
        return narrow(shifted - np.log(np.exp(shifted).sum(axis=attrs["axis"], keepdims=True)), x.dtype)


def _rsqrt(variance: Array, epsilon: float) -> Array:
    return np.reciprocal(np.sqrt(variance + variance.dtype.type(epsilon)))


def _mean(x: Array, axes: tuple[int, ...]) -> Array:
    """The mean over axes; NaN, without NumPy's warning, where there is nothing."""
    count = math.prod(x.shape[d] for d in axes)
    return x.sum(axis=axes, keepdims=True) / x.dtype.type(count)


def _normalized(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    centred = x - _mean(x, axes)
    centred *= _rsqrt(_mean(np.square(centred), axes), epsilon)
    return centred


@means("tensor.layer_norm")
def layer_norm(attrs: Attrs, x: Array, scale: Array, bias: Array | None = None) -> Array:
    """Mean 0 and variance 1 over the dims from the axis on, then scale and bias."""
    axes = tuple(range(attrs["axis"] % x.ndim, x.ndim))
    with np.errstate(all="ignore"):
        y = _normalized(wide(x), axes, attrs["epsilon"])
        y *= wide(scale)
        if bias is not None:
            y += wide(bias)
    return narrow(y, x.dtype)


@means("tensor.rms_norm")
def rms_norm(attrs: Attrs, x: Array, scale: Array) -> Array:
    """Mean square 1 over the dims from the axis on, then scale."""
    axes = tuple(range(attrs["axis"] % x.ndim, x.ndim))
    w = wide(x)
    with np.errstate(all="ignore"):
        y = w * _rsqrt(_mean(np.square(w), axes), attrs["epsilon"])
        y *= wide(scale)
    return narrow(y, x.dtype)


def _channel(v: Array, rank: int) -> Array:
    return wide(v).reshape(-1, *(1,) * (rank - 2))


@means("tensor.batch_norm")
def batch_norm(attrs: Attrs, x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> Array:
    """Per channel: less the mean, times scale over the deviation, plus bias."""
    with np.errstate(all="ignore"):
        factor = wide(scale) * _rsqrt(wide(variance), attrs["epsilon"])
        y = wide(x) - _channel(mean, x.ndim)
        y *= _channel(factor, x.ndim)
        y += _channel(bias, x.ndim)
    return narrow(y, x.dtype)


@means("tensor.group_norm")
def group_norm(attrs: Attrs, x: Array, scale: Array, bias: Array) -> Array:
    """Mean 0 and variance 1 over each sample's groups of channels, then scale and bias per channel."""
    with np.errstate(all="ignore"):
        n, c, *spatial = x.shape
        groups = wide(x).reshape(n, attrs["groups"], c // attrs["groups"] * math.prod(spatial))
        y = _normalized(groups, (2,), attrs["epsilon"]).reshape(x.shape)
        y *= _channel(scale, x.ndim)
        y += _channel(bias, x.ndim)
    return narrow(y, x.dtype)


def _where(keep: Array, scores: Array) -> Array:
    return np.where(keep, scores, scores.dtype.type(-np.inf))


@means("tensor.attention")
def attention(attrs: Attrs, query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """softmax(query · keyᵀ · scale + mask) · value."""
    q, k, v = wide(query), wide(key), wide(value)
    scale = attrs.get("scale")
    scale = 1 / math.sqrt(max(q.shape[-1], 1)) if scale is None else scale
    scores: Array = np.matmul(q * q.dtype.type(scale), k.swapaxes(-1, -2))
    if mask is not None:
        scores = _where(mask, scores) if mask.dtype == np.bool_ else scores + wide(mask)
    if attrs["causal"]:
        scores = _where(np.tri(q.shape[-2], k.shape[-2], dtype=np.bool_), scores)
    return narrow(np.matmul(_softmax(scores, -1), v), query.dtype)
