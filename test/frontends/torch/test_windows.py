"""Convolutions, pools, norms and resampling, as PyTorch computes them."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from typing import Any

import pytest

library = pytest.importorskip("torch")

from torch_programs import check  # noqa: E402

torch: Any = library
F: Any = torch.nn.functional


def test_convolutions() -> None:
    torch.manual_seed(0)
    x, w, b = torch.randn(2, 4, 7, 6), torch.randn(4, 3, 3, 2), torch.randn(6)
    check(
        {
            "transposed": lambda x, w, b: F.conv_transpose2d(x, w),
            "groups": lambda x, w, b: F.conv_transpose2d(x, w, b, stride=(2, 3), padding=(1, 0), groups=2),
            "extra": lambda x, w, b: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1, dilation=2),
            "unbatched": lambda x, w, b: F.conv_transpose2d(x[0], w),
            "plain": lambda x, w, b: F.conv2d(x, w.transpose(0, 1), stride=2, padding=1),
            "same": lambda x, w, b: F.conv1d(x[:, :, 0], w[:, :, 0].repeat(1, 2, 1)[:, :4], padding="same"),
        },
        x,
        w,
        b,
        rtol=1e-4,
        atol=1e-5,
    )


def test_pools() -> None:
    torch.manual_seed(0)
    check(
        {
            "max": lambda x: F.max_pool2d(x, 3, stride=2, padding=1),
            "max ceil": lambda x: F.max_pool2d(x, (2, 3), stride=2, ceil_mode=True, dilation=2),
            "max 1d": lambda x: F.max_pool1d(x[0], 3, stride=2),
            "max 3d": lambda x: F.max_pool3d(x, 2),
            "indices": lambda x: F.max_pool2d(x, 3, stride=2, padding=1, return_indices=True),
            "indices only": lambda x: F.max_pool2d(x, 2, dilation=2, return_indices=True)[1],
            "indices, unbatched": lambda x: F.max_pool2d(x[0], 3, stride=2, padding=1, return_indices=True),
            "indices 1d": lambda x: F.max_pool1d(x[0, 0], 3, stride=2, return_indices=True),
            "indices 3d": lambda x: F.max_pool3d(x, 2, return_indices=True),
            "adaptive indices": lambda x: F.adaptive_max_pool2d(x[0], (4, 3), return_indices=True),
            "mean": lambda x: F.avg_pool2d(x, 3, stride=2, padding=1),
            "mean inside": lambda x: F.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False),
            "mean ceil": lambda x: F.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True),
            "divisor": lambda x: F.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True, divisor_override=5),
            "mean 1d": lambda x: F.avg_pool1d(x[0], 3, stride=2),
            "mean 3d": lambda x: F.avg_pool3d(x, 2),
            "adaptive": lambda x: F.adaptive_avg_pool2d(x, (4, 3)),
            "adaptive equal": lambda x: F.adaptive_avg_pool2d(x, (7, 2)),
            "adaptive 1d": lambda x: F.adaptive_avg_pool1d(x[0], 3),
            "adaptive max": lambda x: F.adaptive_max_pool2d(x, (4, 3)),
        },
        torch.randn(2, 3, 7, 6),
        rtol=1e-4,
        atol=1e-5,
    )


def test_norms() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 5, 6)
    check(
        {
            "layer": lambda x, w: torch.native_layer_norm(x, (6,), w, None, 1e-5),
            "layer over dims": lambda x, w: torch.native_layer_norm(x, (5, 6), None, None, 1e-3)[0],
            "group": lambda x, w: torch.native_group_norm(x, None, None, 2, 4, 30, 2, 1e-5),
            "instance": lambda x, w: F.instance_norm(x),
            "batch, training": lambda x, w: F.batch_norm(x, None, None, w[:4], training=True),
        },
        x,
        torch.randn(6),
        rtol=1e-4,
        atol=1e-5,
    )


def test_resampling() -> None:
    torch.manual_seed(0)
    check(
        {
            "nearest": lambda x: F.interpolate(x, scale_factor=2),
            "nearest size": lambda x: F.interpolate(x, size=(3, 7)),
            "bilinear": lambda x: F.interpolate(x, size=(3, 7), mode="bilinear"),
            "bilinear corners": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
            "grid": lambda x: F.grid_sample(x, x[:, :2, :, :2].contiguous(), align_corners=False),
        },
        torch.randn(2, 3, 5, 4),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_sampling_of_solids_at_points(padding: str) -> None:
    torch.manual_seed(0)
    check(
        {
            f"{mode} {corners}": lambda x, at, m=mode, c=corners: F.grid_sample(x, at, m, padding, align_corners=c)
            for mode in ("bilinear", "nearest")
            for corners in (False, True)
        },
        torch.randn(2, 3, 4, 3, 5),
        3 * torch.rand(2, 2, 3, 4, 3) - 1.5,
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("x", "w", "strides", "pads", "dilations", "extra", "groups"),
    [
        ((2, 3, 7, 6), (4, 3, 3, 2), [1, 1], [0, 0], [1, 1], None, 1),
        ((2, 3, 7, 6), (4, 3, 3, 3), [2, 2], [1, 1], [1, 1], None, 1),  # rows that no window reads
        ((2, 4, 8, 6), (6, 2, 3, 2), [2, 3], [1, 0], [2, 1], None, 2),
        ((3, 4, 9), (4, 1, 3), [2], [1], [1], None, 4),
        ((2, 4, 5, 4), (4, 6, 3, 2), [1, 1], [0, 1], [1, 1], [0, 0], 1),  # transposed
        ((2, 4, 5, 4), (4, 3, 3, 2), [2, 3], [1, 0], [1, 2], [1, 2], 2),
        ((2, 4, 5), (4, 3, 3), [1], [0], [3], [2], 2),  # more rows than a stride
        ((2, 4, 3, 3, 2), (4, 1, 2, 2, 2), [2, 2, 2], [0, 0, 1], [1, 1, 1], [1, 0, 0], 4),
    ],
)
def test_gradients_of_convolutions(
    x: Any, w: Any, strides: Any, pads: Any, dilations: Any, extra: Any, groups: int
) -> None:
    torch.manual_seed(0)
    rest = strides, pads, dilations, extra is not None, extra or [0] * len(strides), groups
    x, w = torch.randn(x), torch.randn(w)
    y = torch.ops.aten.convolution(x, w, None, *rest)
    sizes = [y.shape[1]], *rest, [True, True, True]
    backward = torch.ops.aten.convolution_backward
    check({"all": lambda dy, x, w: backward(dy, x, w, *sizes)}, torch.randn(y.shape), x, w, rtol=1e-4, atol=1e-4)


def test_gradients_of_attention() -> None:
    torch.manual_seed(0)
    q, k, v, dy = (torch.randn(2, 3, 5, 4) for _ in range(4))
    mask = torch.randn(5, 5)
    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    for causal, seen in ((False, None), (True, None), (False, mask)):
        y, sums = forward(q, k, v, is_causal=causal, attn_mask=seen)
        rest = {"is_causal": causal, "attn_mask": seen}
        check(
            {"all": lambda *given, sums=sums, rest=rest: backward(*given, sums, 0.0, **rest)},
            dy,
            q,
            k,
            v,
            y,
            rtol=1e-4,
            atol=1e-5,
        )
