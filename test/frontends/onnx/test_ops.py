"""Every ONNX op that the importer supports, against onnx.reference on small operands."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_models import Array, array, imported, run, single

from headrace.frontends.onnx import ops

X = array(2, 3, 4)
POSITIVE = np.abs(X) + 0.5
UNIT = np.tanh(X)
INTS = array(2, 3, 4, dtype=np.int32)
BOOLS = X > 0
IMAGE = array(2, 4, 7, 6)


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


class Case(NamedTuple):
    """One application of an op."""

    op_type: str
    operands: tuple[Array | None, ...]
    attributes: dict[str, Any]
    known: tuple[int, ...]
    opset: int
    outputs: int

    def __str__(self) -> str:
        extra = "-".join(f"{k}={v}" for k, v in self.attributes.items() if np.size(v) < 9)
        return f"{self.op_type}-{self.opset}-{extra}"


CASES: list[Case] = []


def case(
    op_type: str,
    *operands: Array | None,
    known: tuple[int, ...] = (),
    opset: int = 17,
    outputs: int = 1,
    **attributes: Any,
) -> None:
    CASES.append(Case(op_type, operands, attributes, known, opset, outputs))


# Elementwise
for _name in ("Add", "Sub", "Mul", "Div"):
    case(_name, X, array(3, 1, seed=1))
    case(_name, INTS, array(4, dtype=np.int32, seed=2) | 1)
for _name in ("And", "Or", "Xor"):
    case(_name, BOOLS, array(3, 4, seed=1) > 0)
for _name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
    case(_name, INTS, array(4, dtype=np.int32, seed=2), opset=18)
for _name in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"):
    case(_name, INTS, array(3, 4, dtype=np.int32, seed=2))
    case(_name, X, X[:1])
for _name in ("Neg", "Abs", "Sign", "Exp", "Erf", "Sin", "Cos", "Tan", "Floor", "Ceil", "Round", "Tanh", "Sigmoid"):
    case(_name, X)
for _name in ("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Softplus", "Softsign", "HardSigmoid", "HardSwish", "Shrink"):
    case(_name, X)
for _name in ("Asinh", "Atan", "Sinh", "Cosh", "ThresholdedRelu"):
    case(_name, X)
for _name in ("Asin", "Acos", "Atanh"):
    case(_name, UNIT)
for _name in ("Log", "Sqrt", "Reciprocal"):
    case(_name, POSITIVE)
case("Acosh", POSITIVE + 1)
case("Abs", INTS.astype(np.uint8))
case("Sign", INTS.astype(np.uint8))
case("Not", BOOLS)
case("BitwiseNot", INTS, opset=18)
case("IsNaN", np.array([1, np.nan, np.inf], np.float32))
for _both in ((1, 1), (1, 0), (0, 1), (0, 0)):
    case(
        "IsInf", np.array([-np.inf, 1, np.nan, np.inf], np.float32), detect_positive=_both[0], detect_negative=_both[1]
    )
case("LeakyRelu", X, alpha=0.3)
case("Elu", X, alpha=0.7)
case("Celu", X, alpha=1.7)
case("Selu", X, alpha=2.0, gamma=1.5)
case("HardSigmoid", X, alpha=0.4, beta=0.6)
case("Shrink", X, lambd=1.0, bias=0.3)
case("ThresholdedRelu", X, alpha=0.8)
case("PRelu", X, array(3, 1, seed=3))
case("Mish", X, opset=18)
case("Gelu", X, opset=20)
case("Gelu", X, opset=20, approximate="tanh")
case("Swish", X, opset=24, alpha=1.0)
case("Swish", X, opset=24, alpha=0.5)
case("SwiGLU", X, array(2, 3, 4, seed=4), opset=28, alpha=1.0)
case("Pow", POSITIVE, array(3, 4, seed=5))
case("Pow", X, np.array(2, np.int64))
case("Mod", INTS, np.array([3, -3, 5, -7], np.int32))
case("Mod", X, np.array([3, -3, 5, -7], np.float32), fmod=1)
for _name in ("Max", "Min", "Sum", "Mean"):
    case(_name, X, array(3, 1, seed=1), array(4, seed=2))
    case(_name, X)
case("Clip", X, np.float32(-1), np.float32(0.5), known=(1, 2))
case("Clip", X, np.float32(-1), np.float32(0.5))
case("Clip", X, None, np.float32(0.5), known=(2,))
case("Clip", X, np.float32(2), np.float32(1), known=(1, 2))
case("Clip", X)
case("Clip", INTS, np.int32(-1), np.int32(2), known=(1, 2))
case("Cast", X * 3, to=7)
case("Cast", INTS, to=1)
case("Cast", INTS, to=9)
case("Cast", X, to=1)
case("CastLike", X, INTS)
case("Where", BOOLS, X, np.float32(3))
case("Identity", X)
case("Dropout", X, np.float32(0.5), known=(1,), outputs=2)

# Contraction
case("MatMul", X, array(4, 5, seed=1))
case("MatMul", X, array(2, 4, 5, seed=1))
case("MatMul", X, array(4, seed=1))
case("Gemm", array(3, 4), array(4, 5, seed=1))
case("Gemm", array(4, 3), array(5, 4, seed=1), array(5, seed=2), transA=1, transB=1, alpha=0.5, beta=2.0)
case("Gemm", array(3, 4), array(4, 5, seed=1), array(3, 1, seed=2))
case("Gemm", array(3, 4), array(4, 5, seed=1), array(3, 5, seed=2), beta=0.0)
case("Conv", IMAGE, array(6, 4, 3, 3, seed=1))
case("Conv", IMAGE, array(6, 4, 3, 2, seed=1), array(6, seed=2), strides=[2, 1], pads=[1, 0, 2, 1], dilations=[2, 1])
case("Conv", IMAGE, array(6, 2, 3, 3, seed=1), group=2, kernel_shape=[3, 3])
case("Conv", array(1, 2, 9), array(3, 2, 4, seed=1), strides=[3], auto_pad="SAME_UPPER")
case("Conv", array(1, 2, 9), array(3, 2, 4, seed=1), strides=[2], auto_pad="SAME_LOWER")
case("Conv", array(1, 2, 9), array(3, 2, 4, seed=1), auto_pad="VALID")
case("ConvTranspose", IMAGE, array(4, 3, 3, 2, seed=1))
case("ConvTranspose", IMAGE, array(4, 3, 3, 3, seed=1), array(3, seed=2), strides=[2, 3], pads=[1, 2, 0, 1])
case("ConvTranspose", IMAGE, array(4, 3, 2, 2, seed=1), strides=[2, 2], output_padding=[1, 1])
case("ConvTranspose", IMAGE, array(4, 3, 3, 3, seed=1), dilations=[2, 1], strides=[1, 2])
for _name in ("MaxPool", "AveragePool"):
    case(_name, IMAGE, kernel_shape=[3, 2])
    case(_name, IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1)
    case(_name, IMAGE, kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")
case("MaxPool", IMAGE, kernel_shape=[2, 2], dilations=[2, 2])
case("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
case("AveragePool", IMAGE, kernel_shape=[2, 2], dilations=[2, 2], opset=19)
case("GlobalAveragePool", IMAGE)
case("GlobalMaxPool", IMAGE)
case("LpPool", IMAGE, kernel_shape=[3, 2], p=3, opset=18)
for _equation, _shapes in {
    "ij,jk->ik": ((3, 4), (4, 5)),
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)),
    "bhqd,bhkd->bhqk": ((2, 3, 4, 5), (2, 3, 6, 5)),
    "...ij,jk->...ik": ((2, 3, 4), (4, 5)),
    "ij->ji": ((3, 4),),
    "ij->j": ((3, 4),),
    "i,j": ((3,), (4,)),
    "ij,ij->": ((3, 4), (3, 4)),
    "a,ab,bc->c": ((3,), (3, 4), (4, 5)),
}.items():
    case("Einsum", *(array(*s, seed=i) for i, s in enumerate(_shapes)), equation=_equation)

# Reduction
for _name in (
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
):
    case(_name, X, i64(1, -1), known=(1,), opset=18)
    case(_name, X, i64(0), known=(1,), opset=18, keepdims=0)
    case(_name, X, opset=18)
    case(_name, X, opset=18, noop_with_empty_axes=1)
    if _name != "ReduceSum":
        case(_name, X, opset=13, axes=[-2])
case("ReduceSum", X, i64(1), known=(1,), opset=13)
for _name in ("ReduceLogSum", "ReduceLogSumExp"):
    case(_name, POSITIVE, i64(1), known=(1,), opset=18)
    case(_name, POSITIVE, i64(2), known=(1,), opset=18, keepdims=0)
for _name in ("ArgMax", "ArgMin"):
    case(_name, INTS, axis=1)
    case(_name, INTS, axis=-1, keepdims=0, select_last_index=1)
case("CumSum", X, np.array(1, np.int64), known=(1,))
case("CumSum", X, np.array(-1, np.int64), known=(1,), exclusive=1, reverse=1)
case("TopK", X, np.array([2], np.int64), known=(1,), outputs=2)
case("TopK", X, np.array([1], np.int64), known=(1,), outputs=2, axis=0, largest=0, sorted=0)
case("Hardmax", X, axis=1)
case("LpNormalization", POSITIVE, axis=-1, p=1)  # the reference takes no magnitude
case("LpNormalization", X, axis=0)

# Movement
case("Reshape", X, i64(0, -1), known=(1,))
case("Reshape", X, i64(4, 6), known=(1,))
case("Reshape", np.zeros((0, 3), np.float32), i64(3, 0), known=(1,), allowzero=1)
case("Flatten", X, axis=2)
case("Flatten", X, axis=-1)
case("Flatten", X, axis=0)
case("Squeeze", array(1, 3, 1), i64(0, -1), known=(1,))
case("Squeeze", array(1, 3, 1))
case("Unsqueeze", X, i64(0, -1), known=(1,))
case("Transpose", X)
case("Transpose", X, perm=[1, 2, 0])
case("Expand", array(3, 1), i64(2, 1, 4), known=(1,))
case("Tile", array(2, 3), i64(2, 3), known=(1,))
case("Slice", X, i64(1, 0), i64(2**63 - 1, -1), i64(1, 2), i64(1, 2), known=(1, 2, 3, 4))
case("Slice", X, i64(-1), i64(-(2**63)), i64(2), i64(-1), known=(1, 2, 3, 4))
case("Slice", X, i64(5, -9), i64(9, -7), i64(0, 1), known=(1, 2, 3))
case("Slice", X, i64(0, 1, -2), i64(9, 9, 9), known=(1, 2))
case("Slice", X, i64(10), i64(0), i64(2), i64(-2), known=(1, 2, 3, 4))
case("Concat", X, array(2, 1, 4, seed=1), axis=-2)
case("Concat", X, axis=0)
case("Split", X, i64(1, 3), known=(1,), axis=2, outputs=2)
case("Split", X, axis=2, outputs=2)
case("Split", X, axis=2, opset=18, num_outputs=3, outputs=3)
case("Pad", X, i64(0, 1, 2, 1, 0, 0), np.float32(5), known=(1, 2))
case("Pad", X, i64(0, 1, 2, 1, 0, 0), np.float32(5), known=(1,))
case("Pad", X, i64(0, 1, 2, 0, 1, 1), known=(1,), mode="reflect")
case("Pad", X, i64(0, 1, 2, 0, 1, 1), known=(1,), mode="edge")
case("Pad", X, i64(1, 2), None, i64(-1), known=(1, 3), opset=18)
case("Pad", X, i64(0, 1, 2, 0, 1, 1), known=(1,), mode="wrap", opset=19)
case("DepthToSpace", IMAGE, blocksize=2)
case("DepthToSpace", IMAGE, blocksize=2, mode="CRD")
case("SpaceToDepth", array(1, 2, 4, 6), blocksize=2)
case("CenterCropPad", array(5, 7), i64(3, 10), known=(1,), opset=18)
case("Trilu", array(2, 4, 5), upper=1)
case("Trilu", array(2, 4, 5), np.array(-1, np.int64), known=(1,), upper=0)

# Indexing
TABLE = array(5, 3)
case("Gather", TABLE, np.array(-2, np.int64), known=(1,))
case("Gather", TABLE, i64(1, 3), known=(1,))
case("Gather", TABLE, i64(3, 0, 3), known=(1,))
case("Gather", TABLE, np.array([[0, -1], [2, 2]], np.int64))
case("Gather", X, np.array([[0, -1]], np.int32), axis=1)
case("GatherElements", TABLE, np.array([[0, 1, 2], [4, -1, 3]], np.int64))
case("GatherND", X, np.array([[[0], [2]], [[1], [1]]], np.int64), batch_dims=1)
for _reduction in ("none", "add", "mul", "max", "min"):
    case("ScatterElements", TABLE, np.array([[0, 1, 2]], np.int64), array(1, 3, seed=1), opset=18, reduction=_reduction)
    case("ScatterND", TABLE, np.array([[4], [1]], np.int64), array(2, 3, seed=1), opset=18, reduction=_reduction)
case("OneHot", i64(0, -1, 3, 9), np.array(4, np.int64), np.array([0.5, 2], np.float32), known=(1,))
case("OneHot", i64(0, 2), np.array(3, np.int64), np.array([0, 1], np.int32), known=(1, 2), axis=0)

# Normalization
SCALE, BIAS = array(4, seed=1), array(4, seed=2)
case("Softmax", X, axis=1)
case("Softmax", X)
case("LogSoftmax", X, axis=-1)
case("LayerNormalization", X, SCALE, BIAS)
case("LayerNormalization", X, SCALE, None, epsilon=0.1)
case("LayerNormalization", X, array(3, 4, seed=1), array(3, 4, seed=2), axis=1, outputs=3)
case("RMSNormalization", X, SCALE, opset=23)
case("BatchNormalization", IMAGE, SCALE, BIAS, array(4, seed=3), np.abs(array(4, seed=4)), epsilon=0.01)
case("InstanceNormalization", IMAGE, SCALE, BIAS)
case("GroupNormalization", IMAGE, array(2, seed=1), array(2, seed=2), num_groups=2, opset=18)
case("GroupNormalization", IMAGE, SCALE, BIAS, num_groups=2, opset=21)
case("MeanVarianceNormalization", IMAGE)
case("LRN", array(5, 5, 3, 2), size=3, alpha=0.5, beta=0.7, bias=1.5)

# Constants and shapes
case("Shape", X, start=-2)
case("Size", X)
case("ConstantOfShape", i64(2, 3), known=(0,))
case("Range", np.float32(1), np.float32(4), np.float32(0.5), known=(0, 1, 2))
case("Range", np.array(9, np.int64), np.array(0, np.int64), np.array(-2, np.int64), known=(0, 1, 2))
case("EyeLike", array(3, 4), k=1, dtype=7)

# Attention
Q, K, V = array(2, 4, 3, 8), array(2, 4, 5, 8, seed=1), array(2, 4, 5, 6, seed=2)
case("Attention", Q, K, V, opset=23)
case("Attention", Q, K, V, opset=23, is_causal=1, scale=0.3)
case("Attention", Q, K, V, array(3, 5, seed=3), opset=23, softcap=2.0)
case("Attention", Q, K, V, array(3, 5, seed=3) > -3, opset=23)
case("Attention", Q, K[:, :2], V[:, :2], opset=23)
case("Attention", array(2, 3, 32), array(2, 5, 32), array(2, 5, 16), opset=23, q_num_heads=4, kv_num_heads=4)
case("Attention", Q, K, V, None, array(2, 4, 2, 8, seed=4), array(2, 4, 2, 6, seed=5), opset=23, outputs=3, is_causal=1)
_COS, _SIN = array(9, 4, seed=1), array(9, 4, seed=2)
_AT = np.array([[0, 3, 4], [1, 2, 8]], np.int64)
case("RotaryEmbedding", Q, _COS, _SIN, _AT, opset=23)
case("RotaryEmbedding", Q, _COS, _SIN, _AT, opset=23, interleaved=1)
case("RotaryEmbedding", array(2, 3, 32), _COS, _SIN, _AT, opset=23, num_heads=4)
case("TensorScatter", array(2, 6, 3), array(2, 2, 3, seed=1), i64(1, 3), opset=24)
case("TensorScatter", array(2, 6, 3), array(2, 2, 3, seed=1), i64(5, 3), opset=24, mode="circular")

# Losses
LOGITS, TARGET, CLASS_WEIGHT = array(3, 5, 2), np.array([[0, 4], [1, 1], [2, 3]], np.int64), np.abs(array(5, seed=1))
for _reduction in ("none", "sum", "mean"):
    for _name in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"):
        case(_name, LOGITS, TARGET, CLASS_WEIGHT, reduction=_reduction, ignore_index=1)
        case(_name, LOGITS, TARGET, reduction=_reduction)


@pytest.mark.parametrize("x", CASES, ids=str)
def test_like_the_reference(x: Case) -> None:
    proto, feeds = single(x.op_type, x.operands, x.known, x.opset, x.outputs, **x.attributes)
    with np.errstate(all="ignore"):
        wanted = [np.asarray(y) for y in ReferenceEvaluator(proto).run(None, feeds)]  # pyright: ignore
        found = run(imported(proto), feeds)
    for have, want in zip(found, wanted, strict=True):
        assert (have.shape, have.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(have, want, rtol=2e-5, atol=2e-6)


def test_negative_pads_remove_elements() -> None:
    proto, feeds = single("Pad", [X, i64(0, -1, 0, 1, 0, -2)], known=(1,))
    np.testing.assert_array_equal(run(imported(proto), feeds)[0], np.pad(X[:, 1:, :-2], ((0, 1), (0, 0), (0, 0))))


def test_grouped_transposed_convolution_is_one_per_group() -> None:
    x, w = array(1, 4, 3, 3), array(4, 2, 2, 2, seed=1)
    options = {"strides": [2, 2], "output_padding": [1, 1]}
    whole = run(imported(single("ConvTranspose", [x, w], group=2, **options)[0]), {"x0": x, "x1": w})[0]
    for g in range(2):
        feeds = {"x0": x[:, 2 * g : 2 * g + 2], "x1": w[2 * g : 2 * g + 2]}
        part = run(imported(single("ConvTranspose", list(feeds.values()), **options)[0]), feeds)[0]
        np.testing.assert_allclose(whole[:, 2 * g : 2 * g + 2], part, rtol=1e-5)


def test_every_op_has_a_case() -> None:
    elsewhere = {"Constant", "GlobalLpPool"}
    elsewhere |= {"RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike", "Bernoulli", "Multinomial"}
    assert set(ops.table()) - elsewhere == {x.op_type for x in CASES}
