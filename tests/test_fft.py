"""Fourier transforms against CPU, with their gradients."""

from __future__ import annotations

import torch
from support import check, randn

FFT = torch.fft
NORMS = ("backward", "ortho", "forward")
SIZES = ((None, -1), (5, 1), (12, 0))


def signal(*shape: int, dtype: torch.dtype = torch.float64, grad: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_(grad)


def test_one_axis() -> None:
    for dtype in (torch.float32, torch.float64):
        x = signal(3, 7, 8, dtype=dtype)
        check(
            lambda x: [
                f(x, n, dim, norm) for norm in NORMS for f in (FFT.fft, FFT.ifft, FFT.rfft, FFT.ihfft) for n, dim in SIZES
            ],
            x,
        )
    for dtype in (torch.complex64, torch.complex128):
        z = signal(3, 7, 8, dtype=dtype)
        check(
            lambda z: [
                f(z, n, dim, norm) for norm in NORMS for f in (FFT.fft, FFT.ifft, FFT.irfft, FFT.hfft) for n, dim in SIZES
            ],
            z,
        )


def test_many_axes() -> None:
    x, z = signal(2, 3, 4, 5, 6), signal(2, 3, 4, 5, 6, dtype=torch.complex128)
    check(lambda x: [f(x, norm=norm) for norm in NORMS for f in (FFT.fft2, FFT.rfft2, FFT.rfftn, FFT.fftn, FFT.ifftn)], x)
    check(lambda z: [f(z, norm=norm) for norm in NORMS for f in (FFT.fft2, FFT.irfft2, FFT.irfftn, FFT.fftn, FFT.ifftn)], z)
    check(lambda x, z: [FFT.rfftn(x, dim=(3, 0, 1)), FFT.irfftn(z, s=(4, 7), dim=(-1, 1)), FFT.fftn(x, dim=())], x, z)
    check(lambda x, z: [FFT.hfft2(z, dim=(0, 2)), FFT.ihfft2(x, dim=(0, 2)), FFT.fftn(z.transpose(0, 2)[1:, ::2])], x, z)


def test_edges() -> None:
    check(lambda x: [FFT.rfft(x), FFT.fft(x), FFT.irfft(FFT.rfft(x), 2)], signal(3, 1))
    # The imaginary parts of the ends do not count.
    check(lambda z: [FFT.irfft(z), FFT.irfft(z, 5)], signal(4, dtype=torch.complex128))
    check(lambda x: [FFT.fft(x), FFT.fftshift(FFT.rfft(x)), FFT.ifftshift(x)], torch.arange(6))
    for device in ("cpu", "tpu"):
        assert FFT.fftfreq(5, device=device).tolist()[:2] == [0.0, torch.tensor(0.2).item()]


def test_gradients() -> None:
    x, z = signal(3, 6, grad=True), signal(3, 6, dtype=torch.complex128, grad=True)
    check(lambda x: [f(x, norm=n) for n in NORMS for f in (FFT.rfft, FFT.fft, FFT.rfft2, FFT.fft2)], x)
    check(lambda z: [f(z, norm=n) for n in NORMS for f in (FFT.irfft, FFT.fft, FFT.irfft2, FFT.ifft2)], z)
    check(lambda z: [FFT.irfft(z, 7), FFT.irfft(z, 8, dim=0)], z)

    def twice(x: torch.Tensor) -> torch.Tensor:
        (g,) = torch.autograd.grad(FFT.rfft(x).abs().pow(3).sum(), x, create_graph=True)
        return g

    check(twice, signal(3, 6, grad=True))


def test_spectrogram() -> None:
    x, window = randn(2, 200), torch.hann_window(32)
    check(lambda x, w: torch.stft(x, 32, 8, window=w, return_complex=True), x, window)
    check(lambda x, w: torch.istft(torch.stft(x, 32, 8, window=w, return_complex=True), 32, 8, window=w, length=200), x, window)
