"""Overloads of core ATen that few models reach: those with scalars, with one dim, without a functional form."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

import math
from typing import Any

import pytest

library = pytest.importorskip("torch")

from torch_programs import check  # noqa: E402

torch: Any = library
F: Any = torch.nn.functional
aten: Any = torch.ops.aten


def test_numbers() -> None:
    torch.manual_seed(0)
    check(
        {
            "and": lambda x, i: aten.bitwise_and.Scalar(i, 6),
            "or": lambda x, i: aten.bitwise_or.Scalar(i, 6),
            "xor": lambda x, i: aten.bitwise_xor.Scalar(i, 6),
            "xor of truth": lambda x, i: aten.bitwise_xor.Scalar(i > 4, True),
            "xor of two": lambda x, i: aten.bitwise_xor.Tensor(i, i.flip(0)),
            "floor": lambda x, i: aten.div.Scalar_mode(x, 0.3, rounding_mode="floor"),
            "trunc": lambda x, i: aten.div.Scalar_mode(x, 0.3, rounding_mode="trunc"),
            "floor of integers": lambda x, i: aten.div.Scalar_mode(i, -3, rounding_mode="floor"),
            "fill": lambda x, i: aten.fill.Scalar(x, 3.5),
            "fill integers": lambda x, i: aten.fill.Scalar(i, 3.5),
            "write": lambda x, i: aten.scatter.value(x, 1, i % 4, 2.0),
            "angle": lambda x, i: torch.atan2(x, x.flip(0), out=torch.empty_like(x)),
            "elements": lambda x, i: x * x.numel() + x.stride(0) + x.is_contiguous(),
        },
        torch.randn(3, 4),
        torch.randint(0, 50, (3, 4)),
    )


def test_dims() -> None:
    torch.manual_seed(0)
    check(
        {
            "product": lambda x: aten.prod.dim_int(x, 1),
            "product kept": lambda x: aten.prod.dim_int(x, -1, True),
            "variance": lambda x: aten.var.dim(x, [1, 2], True, True),
            "variance, biased": lambda x: aten.var.dim(x, [-1], False),
            "squeeze": lambda x: aten.squeeze.dim(x[:, :1], 1),
            "squeeze nothing": lambda x: aten.squeeze.dim(x, 1),
            "resize": lambda x: aten.resize(x, [5, 2]),
            "resize to as many": lambda x: aten.resize(x, [4, 6]),
            "resize to more": lambda x: aten.resize(x, [30])[:24],
            "select_scatter": lambda x: aten.select_scatter(x, x[:, 0] + 1, 1, -1),
        },
        torch.randn(2, 3, 4),
        rtol=1e-4,
        atol=1e-5,
    )


def test_windows() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 5, 6)
    check(
        {
            "mean 1d": lambda x, w: aten.avg_pool1d(x[0], 3, 2, 1),
            "adaptive 1d": lambda x, w: aten.adaptive_avg_pool1d(x[0], 4),
            "reflected 1d": lambda x, w: aten.reflection_pad1d(x[0], [2, 3]),
            "reflected 2d": lambda x, w: aten.reflection_pad2d(x, [2, 3, 1, 0]),
            "reflected 3d": lambda x, w: aten.reflection_pad3d(x, [2, 3, 1, 0, 3, 1]),
            "replicated 2d": lambda x, w: aten.replication_pad2d(x, [-2, 3, 1, -1]),
            "replicated 3d": lambda x, w: aten.replication_pad3d(x, [2, 3, 1, 0, 3, 1]),
            "nearest": lambda x, w: aten.upsample_nearest2d.vec(x, None, [1.5, 2.0]),
            "columns": lambda x, w: aten.col2im(
                aten.im2col(x, [3, 2], [1, 2], [1, 0], [2, 1]), [5, 6], [3, 2], [1, 2], [1, 0], [2, 1]
            ),
            "no dropout": lambda x, w: aten.native_dropout(x, 0.5, False),
            "batch norm": lambda x, w: aten._native_batch_norm_legit_no_training(x, w, w, w, w, 0.1, 1e-5),
            "batch norm without statistics": lambda x, w: aten._native_batch_norm_legit.no_stats(
                x, w, None, True, 0.1, 1e-5
            ),
        },
        x,
        torch.rand(4),
        rtol=1e-4,
        atol=1e-5,
    )


def test_statistics_of_a_batch_norm() -> None:
    torch.manual_seed(0)

    def norm(x: Any, w: Any) -> Any:
        mean, variance = w + 1, w + 2
        return aten._native_batch_norm_legit(x, w, w, mean, variance, True, 0.3, 1e-5), mean, variance

    check({"all": norm}, torch.randn(2, 4, 5), torch.rand(4), rtol=1e-4, atol=1e-5)


def test_bags() -> None:
    torch.manual_seed(0)
    functions: dict[str, Any] = {
        "weighted": lambda w, i, o: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=w[:5, 0])
    }
    for mode in ("sum", "mean", "max"):
        for padding in (None, 2):
            functions[f"{mode} {padding}"] = lambda w, i, o, m=mode, p=padding: F.embedding_bag(
                i, w, o, mode=m, padding_idx=p
            )
            functions[f"{mode} {padding} to the end"] = lambda w, i, o, m=mode, p=padding: F.embedding_bag(
                i, w, torch.cat([o, o[:1] + 5]), mode=m, padding_idx=p, include_last_offset=True
            )
    functions["bags and sizes"] = lambda w, i, o: aten._embedding_bag(w, i, o, False, 1)[1:3]
    inputs = torch.randn(8, 3), torch.tensor([1, 2, 3, 7, 2]), torch.tensor([0, 2, 2])
    check(functions, *inputs, rtol=1e-4, atol=1e-5)


def test_rows_of_bounded_length() -> None:
    torch.manual_seed(0)
    functions: dict[str, Any] = {
        f"{most} {order}": lambda w, i, m=most, p=order: F.embedding(i, w.clone(), max_norm=m, norm_type=p)
        for most in (0.5, 3.0)
        for order in (1.0, 2.0, math.inf)
    }
    check(functions, torch.randn(6, 3), torch.tensor([[1, 2], [2, 5]]), rtol=1e-4, atol=1e-5)
