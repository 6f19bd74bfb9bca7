"""Complex numbers within a program, and Fourier transforms."""

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
from torch_programs import check  # noqa: E402

import headrace  # noqa: E402
from headrace import CompileError  # noqa: E402

fft: Any = torch.fft
real: Any = torch.view_as_real
Function = Callable[[Any], Any]
X = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0))

TRANSFORMS: dict[str, Function] = {
    "rfft": lambda x: real(fft.rfft(x)),
    "rfft of a dim": lambda x: real(fft.rfft(x, 7, 1, "ortho")),
    "fft of real numbers": lambda x: real(fft.fft(x, norm="forward")),
    "fft there and back": lambda x: fft.ifft(fft.fft(x, dim=0), dim=0).real,
    "fft of planes": lambda x: real(fft.fft2(x)),
    "rfft of volumes": lambda x: real(fft.rfftn(x)),
    "irfft": lambda x: fft.irfft(x),
    "irfft to an odd length": lambda x: fft.irfftn(fft.rfftn(x), (2, 4, 5), norm="forward"),
    "irfft of real numbers": lambda x: fft.irfft(x, 10, 1, "ortho"),
    "shifted": lambda x: real(fft.ifftshift(fft.fftshift(fft.fft(x) * 2j), 1)),
    "windows": lambda x: real(torch.stft(x.flatten(1), 8, 4, window=torch.hann_window(8), return_complex=True)),
}
LONG: dict[str, Function] = {
    "factors": lambda x: real(fft.rfft(x.repeat(1, 1, 60))),
    "of two": lambda x: fft.irfft(fft.rfft(x.repeat(1, 1, 86)[..., :512])),
    "of a prime": lambda x: real(fft.fft(x.repeat(1, 1, 30)[..., :131])),
}
NUMBERS: dict[str, Function] = {
    "product": lambda z: real(z * z.flip(0)),
    "product with real numbers": lambda z: real(z.real * z * 3),
    "quotient": lambda z: real(z / (z.flip(1) * 1e30) * 1e30),
    "quotient of a number": lambda z: real(z / (1 - 2j)),
    "sum": lambda z: real(torch.add(z, z.imag, alpha=2) - (1 + 2j)),
    "sum along": lambda z: real(z.sum((0, 2))),
    "matrices": lambda z: real(z @ z.mT.conj()),
    "einsum": lambda z: real(torch.einsum("bij,ikj->bkj", z, z[0, :, None].expand(4, 3, 6))),
    "size": lambda z: z.abs(),
    "angle": lambda z: z.angle(),
    "power": lambda z: (z * z.conj()).real,
    "exponential": lambda z: real(torch.exp(z)),
    "joined": lambda z: real(torch.cat((z, torch.zeros(1, 4, 6, dtype=z.dtype)))),
    "joined with real numbers": lambda z: real(torch.stack((z, z * 0 + 1), -1)),
    "chosen": lambda z: real(torch.where(z.real > 0, z, -z)),
    "parts": lambda z: real(z.chunk(2, -1)[1]),
    "looked up": lambda z: real(z[:, [2, 0]].roll(1, 2)),
    "padded": lambda z: real(torch.nn.functional.pad(z, (1, 2))),
    "turned": lambda z: real(z * torch.polar(torch.ones(6), torch.arange(6.0))),
    "to double": lambda z: real(z.to(torch.complex128)),
}


def test_transforms() -> None:
    check(TRANSFORMS, X, rtol=1e-5, atol=1e-5)


def test_long_transforms_are_split_by_their_factors() -> None:
    check(LONG, X, rtol=1e-4, atol=1e-3)


def test_a_zero_that_is_exact_has_no_angle() -> None:
    """Conjugates of themselves are real, so that their angle is 0 or π."""
    check({"angle": lambda x: fft.rfft(x).angle()}, X, rtol=1e-4, atol=1e-4)


def test_complex_numbers() -> None:
    functions: dict[str, Function] = {
        name: lambda x, f=f: f(torch.complex(x, x.flip(2) * 0.5)) for name, f in NUMBERS.items()
    }
    check(functions, X, rtol=1e-5, atol=1e-5)


class Convolves(torch.nn.Module):
    """Along a line, by a product of spectra."""

    def forward(self, x: Any, weight: Any) -> Any:
        return fft.irfft(fft.rfft(x) * fft.rfft(weight), x.shape[-1])


def test_a_convolution_by_spectra_runs() -> None:
    x, weight = torch.randn(3, 16), torch.randn(16)
    executable = headrace.compile(Convolves(), example_inputs=(x, weight))
    torch.testing.assert_close(executable(x, weight), Convolves()(x, weight), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x: fft.rfft(x), r"result '_fft_r2c' is of complex numbers"),
        (lambda x: fft.rfft(x).sin().real, r"aten.sin.default is not supported"),
        (lambda x: real(fft.rfft(x.repeat(1, 700, 1).flatten()[:4099])), r"length 4099 has no factors"),
    ],
)
def test_what_stays_complex_is_refused(function: Function, why: str) -> None:
    class Gives(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return function(x)

    with pytest.raises(CompileError, match=why):
        headrace.compile(Gives(), example_inputs=(X,))
