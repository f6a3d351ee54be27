"""Conversions between every pair of dtypes, bit for bit, against the CPU."""

from __future__ import annotations

import pytest
import torch
from support import check
from sweep import Call, disagreements

NAN, INF = float("nan"), float("inf")
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
EIGHTS = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
UNSIGNED_ZERO = [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
WIDE = [torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]
ALL = [*FLOATS, *EIGHTS, *INTEGERS, *WIDE, *COMPLEX, torch.bool]

AWKWARD = [
    0.0, -0.0, 1.5, -1.5, 0.99, -0.99, 127, 128, -129, 255, 256, 300, -1, -300, 448, 449, 464, 465, 480, 240, 248,
    57344, 61439, 61440, 65504, 65520, 70000, -70000, 2.0**31, -(2.0**31), -(2.0**31) - 1, 3e9, -3e9, 3000000001, 5e9,
    9.3e18, 1e19, -1e19, 1.3e19, 1e20, 1e30, NAN, INF, -INF, 1e-3, 2.0**-9, 2.0**-10, 1.0009765625, 1.0029296875,
    1.00390625, 1.01171875, 0.1,
]  # fmt: skip


def sample(dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.tensor([True, False, True])
    if dtype.is_complex:
        return torch.complex(torch.tensor(AWKWARD).double(), torch.tensor(AWKWARD).double().flip(0)).to(dtype)
    if dtype.is_floating_point:
        return torch.tensor(AWKWARD, dtype=torch.float64).float().to(dtype)
    info = torch.iinfo(dtype)
    numbers = [
        0,
        1,
        2,
        100,
        127,
        128,
        257,
        65535,
        65537,
        2**24 + 1,
        2**31,
        2**32 + 5,
        2**53 + 1,
        info.max,
        info.max - 1,
        info.min,
        -1,
        -2,
        -129,
    ]
    return torch.tensor([n for n in numbers if info.min <= n <= info.max], dtype=dtype)


def bits(x: torch.Tensor) -> torch.Tensor:
    """``x`` as what tells every value apart: NaN becomes one value, the sign of zero stays."""
    if x.dtype.is_complex:
        x = torch.view_as_real(x)
    if not x.dtype.is_floating_point:
        return x
    wide = x.double().nan_to_num(12345.0, 2.0**1000, -(2.0**1000))
    return torch.stack([wide, torch.copysign(torch.ones_like(wide), wide)])


def calls_of(source: torch.dtype) -> list[Call]:
    calls: list[Call] = []
    for target in ALL:
        x = sample(source)
        if target == torch.uint32 and source.is_floating_point and source.itemsize > 1:
            x = x[(x >= -(2.0**31)) & (x < 2.0**32)]  # beyond, CPU's vector loop and its scalar one disagree
        if source in UNSIGNED_ZERO and not target.is_floating_point and not target.is_complex:
            x = x[~x.float().isnan()]  # CPU's compiler folds these NaN into a zero
        if source.is_complex and target == torch.uint32:
            continue
        calls.append((f"{source} to {target}", lambda a, target=target: bits(a.to(target)), (x,)))
    return calls


@pytest.mark.parametrize(
    "sources", [FLOATS, EIGHTS, [*INTEGERS, torch.bool], [*WIDE, *COMPLEX]], ids=["floats", "fp8", "integers", "others"]
)
def test_every_pair(sources: list[torch.dtype]) -> None:
    assert not disagreements([call for source in sources for call in calls_of(source)])


def test_every_half_number_to_fp8_and_every_float_between_halves() -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.float16)
    between = torch.randn(4096, generator=torch.Generator().manual_seed(0)).exp() * 3

    def fn(every: torch.Tensor, between: torch.Tensor) -> list[torch.Tensor]:
        narrowed = [x.to(dtype) for x in (every, between) for dtype in (*EIGHTS, torch.bfloat16, torch.int8)]
        return [torch.nan_to_num(x.float(), 12345.0, 1e30, -1e30) for x in narrowed]

    check(fn, every, between, rtol=0, atol=0)


def test_a_round_trip_through_a_half_rounds() -> None:
    check(
        lambda x: [x.bfloat16().float(), x.half().float() + x, (x.bfloat16() * x.bfloat16()).float()],
        torch.linspace(0.1, 3, 50),
        rtol=0,
        atol=0,
    )


def test_casts_of_views_and_their_gradients() -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        y = x.t()[::2].double() * 2
        z = x[:, 1].to(torch.bfloat16)
        i = torch.zeros(4, dtype=torch.int32, device=x.device)
        i[1:] = x.detach()[1:, 0] * 100
        return [y, z.float(), x.half().t().float(), i, (x > 0).float() * x, x.detach().t().int()]

    check(fn, torch.randn(4, 6, generator=torch.Generator().manual_seed(1)).requires_grad_())
