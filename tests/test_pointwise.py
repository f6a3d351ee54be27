"""Arithmetic, comparison, logic, selection and functions of one number, against the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import check, randn
from sweep import Call, disagreements

import lazytpu

NAN, INF = float("nan"), float("inf")
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.uint8, torch.int8, torch.int64]
OTHERS = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.uint8, torch.int32, torch.int64, torch.bool]

UNARY = [
    "abs",
    "neg",
    "sign",
    "sgn",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "square",
    "reciprocal",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "sigmoid",
    "logit",
    "erf",
    "erfc",
    "erfinv",
    "lgamma",
    "digamma",
    "sinc",
    "i0",
    "floor",
    "ceil",
    "round",
    "trunc",
    "frac",
    "isnan",
    "isinf",
    "isfinite",
    "isposinf",
    "isneginf",
    "nan_to_num",
    "signbit",
    "bitwise_not",
    "logical_not",
    "angle",
    "conj_physical",
    "deg2rad",
    "frexp",
]
SPECIAL = ["entr", "erfcx", "i0e", "i1", "i1e", "log_ndtr", "ndtri", "ndtr"]
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "floor_divide",
    "remainder",
    "fmod",
    "pow",
    "atan2",
    "hypot",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "copysign",
    "nextafter",
    "logaddexp",
    "logaddexp2",
    "xlogy",
    "heaviside",
    "gcd",
    "lcm",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "logical_and",
    "logical_or",
    "logical_xor",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "ldexp",
    "float_power",
    "igamma",
    "igammac",
]


def sample(dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Ordinary numbers and the awkward ones of ``dtype``, in an order of the seed's."""
    g = torch.Generator().manual_seed(seed)
    if dtype.is_complex:
        x = torch.complex(randn(40, seed=seed), randn(40, seed=seed + 1)).to(dtype)
    elif dtype.is_floating_point:
        awkward = [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 2, -2, 3, NAN, INF, -INF, 100, -100, 1e4, 8, 1024, 1000, 1e-3]
        x = torch.cat([torch.randn(20, generator=g) * 3, torch.rand(10, generator=g), torch.tensor(awkward)]).to(dtype)
    elif dtype == torch.bool:
        x = torch.randint(0, 2, (16,), generator=g).bool()
    else:
        info = torch.iinfo(dtype)
        low, high = max(info.min, -(2**40)), min(info.max, 2**40)
        ends = torch.tensor([0, 1, 2, 3, 7, info.max, info.min + 1, info.max - 1])
        small = torch.randint(max(low, -20), 20, (24,), generator=g)
        x = torch.cat([small, torch.randint(low, high, (12,), generator=g), ends]).to(dtype)
    return x[torch.randperm(len(x), generator=g)]


def nonzero(x: torch.Tensor) -> torch.Tensor:
    """``x``, with ones for an integer's zeros: CPU raises on a division by those."""
    return x if x.is_floating_point() or x.is_complex() else torch.where(x == 0, torch.ones_like(x), x)


def in_place(name: str) -> Callable[..., Any]:
    return lambda a, *rest: getattr(a.clone(), f"{name}_")(*rest)


def calls_of(dtype: torch.dtype) -> list[Call]:
    """Every pointwise op on tensors of ``dtype``, with tensors, scalars, and other dtypes on either side."""
    x, y = sample(dtype), sample(dtype, 5)
    divisor = nonzero(y)
    mask = torch.arange(len(x)) % 3 == 0
    calls: list[Call] = [(name, getattr(torch, name), (x,)) for name in UNARY]
    calls += [(f"special.{name}", getattr(torch.special, name), (x,)) for name in SPECIAL]
    for name in BINARY:
        op = getattr(torch, name)
        second = divisor if name in ("floor_divide", "remainder", "fmod") else y
        calls += [(name, op, (x, second)), (f"{name} -3", op, (x, -3)), (f"{name} 0.7", op, (x, 0.7))]
    reflected = {
        "pow": lambda s, t: s**t,
        "sub": lambda s, t: s - t,
        "div": lambda s, t: s / t,
        "floordiv": lambda s, t: s // t,
        "mod": lambda s, t: s % t,
        "lshift": lambda s, t: s << t,
        "rshift": lambda s, t: s >> t,
        "and": lambda s, t: s & t,
        "xlogy": torch.xlogy,
        "xlog1py": torch.special.xlog1py,
    }
    for s in (2, 0.995, True):
        calls += [(f"{s} {name} tensor", op, (s, divisor)) for name, op in reflected.items()]
    for mode in ("trunc", "floor", None):
        for other in (divisor, 3, -2.5):
            calls.append((f"div {mode}", lambda a, b, m=mode: torch.div(a, b, rounding_mode=m), (x, other)))
    calls += [(f"round {d}", lambda a, d=d: torch.round(a, decimals=d), (x,)) for d in (2, -1)]
    calls += [(f"pow {e}", torch.pow, (x, e)) for e in (0, 1, 2, 3, 5, -1, -2, -3, 0.5, -0.5, 1.5, 2.0)]
    calls += [(f"polygamma {n}", lambda a, n=n: torch.polygamma(n, a), (x,)) for n in range(4)]
    calls += [
        (f"{op.__name__} alpha", lambda a, b, op=op: op(a, b, alpha=3), (x, y)) for op in (torch.add, torch.sub, torch.rsub)
    ]
    calls += [
        ("addcmul", lambda a, b: torch.addcmul(a, b, a, value=2), (x, y)),
        ("addcdiv", lambda a, b: torch.addcdiv(a, b, a, value=0.3), (x, y)),
        ("lerp tensor", torch.lerp, (x, y, y)),
        *((f"lerp {w}", torch.lerp, (x, y, w)) for w in (0.1, 0.5, 0.9, 2)),
        *(
            (f"clamp {low} {high}", torch.clamp, (x, low, high))
            for low, high in ((1, 3), (-0.5, 3), (3, 1), (None, 2), (NAN, 2.0))
        ),
        ("clamp tensors", torch.clamp, (x, y, y)),
        ("clamp_min", torch.clamp_min, (x, 2)),
        ("clamp_max", torch.clamp_max, (x, y)),
        ("masked_fill tensor", lambda a, m: a.masked_fill(m, a[2]), (x, mask)),
        ("where", torch.where, (mask, x, y)),
        ("logit eps", lambda a: torch.logit(a, 0.1), (x,)),
        ("nan_to_num numbers", lambda a: torch.nan_to_num(a, 1.0, 2.0, -3.0), (x,)),
        ("zeta", lambda a: torch.special.zeta(a.clamp(max=30), 2.5), (x,)),
    ]
    for s in (2, -1, 1.5, True):
        calls.append((f"masked_fill {s}", lambda a, m, s=s: a.masked_fill(m, s), (x, mask)))
        calls.append((f"where {s}", lambda a, m, s=s: torch.where(m, a, s), (x, mask)))
    return calls


def calls_with_other_types(dtype: torch.dtype) -> list[Call]:
    """Operands of two dtypes: tensors, a tensor of one element and a scalar tensor on the right, and in place."""
    calls: list[Call] = []
    x = sample(dtype)
    for other in OTHERS:
        z = nonzero(sample(other, 2)[:1])
        for name in ("add", "mul", "div", "eq", "maximum", "pow", "fmod", "bitwise_or", "copysign"):
            calls.append((f"{name} {other}", getattr(torch, name), (x, z)))
        calls += [(f"{name} scalar {other}", getattr(torch, name), (x, z[0])) for name in ("add", "pow", "lt")]
        calls += [(f"{name}_ {other}", in_place(name), (x, z)) for name in ("add", "floor_divide", "eq", "pow")]
    return calls


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool, torch.complex64], ids=str)
def test_every_op_agrees_with_the_cpu(dtype: torch.dtype) -> None:
    assert not disagreements(calls_of(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8, torch.int64], ids=str)
def test_mixed_types_agree_with_the_cpu(dtype: torch.dtype) -> None:
    assert not disagreements(calls_with_other_types(dtype))


def test_a_masked_nan_stays_nan() -> None:
    x = torch.tensor([NAN, NAN, INF, INF, 1.0, 0.0])
    m = torch.tensor([True, False] * 3)
    check(lambda x, m: [x * m, x * m.float(), m / (x * 0), (x > 0).float() * x, m * INF, x.half() * m.half()], x, m)


def test_strides_views_and_out() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        out = torch.empty(0, device=a.device)
        wide = torch.empty(4, 3, dtype=torch.float64, device=a.device)
        t = a.t() + b.t()
        assert t.stride() == (1, 3)
        c = a.clone()
        c.t()[1:].mul_(2).add_(1)
        c[:, ::2].sub_(b[:, ::2].flip(0))
        c[1].clamp_(min=0).neg_()
        torch.add(a, b, out=out)
        torch.mul(a, b, out=wide)
        return [t, c, out, wide, a[:, 1] * b[2, 0], a + b[0], a.sum() * b, torch.lerp(a, b, 0.3).t().exp_()]

    check(fn, randn(4, 3), randn(4, 3, seed=1))


def test_empty_and_scalar_shapes() -> None:
    def fn(e: torch.Tensor, z: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        return [
            e + 1,
            e * e,
            e.exp(),
            e > 0,
            z * z,
            z + e,
            z // 2,
            i // 2,
            i % 3,
            i / 2,
            z**i,
            i * 1.5,
            -z,
            e.clamp(0, 1),
            z.floor_divide_(0.5),
        ]

    check(fn, torch.empty(0, 3), torch.tensor(2.5), torch.tensor(7))


def test_gradients() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        p = x.abs() + 0.5
        return [
            x * y + x / p - 2 * y,
            torch.addcmul(x, y, w, value=0.5),
            torch.addcdiv(x, y, p),
            torch.lerp(x, y, w),
            torch.lerp(x, y, 0.7),
            p**2.5,
            p**y,
            2**x,
            x.pow(3),
            torch.where(x > y, x, y * 2),
            x.clamp(-0.5, 0.5),
            torch.clamp(x, y, w),
            x.masked_fill(y > 0, 1.0),
            torch.maximum(x, y),
            torch.fmin(x, y),
            torch.atan2(x, y),
            torch.hypot(x, y),
            torch.logaddexp(x, y),
            torch.xlogy(p, p),
            x.sin() * y.cos(),
            x.tan(),
            x.tanh(),
            x.sigmoid(),
            x.exp().log1p(),
            p.log2(),
            p.log10(),
            p.rsqrt(),
            p.sqrt(),
            x.erf(),
            x.erfc(),
            p.lgamma(),
            p.digamma(),
            x.sinc(),
            x.sinh().asinh(),
            x.cosh(),
            x.atan(),
            x.exp2(),
            x.expm1(),
            torch.remainder(x, 0.7),
            torch.fmod(x, p),
            x.frac(),
            x.nan_to_num(),
            torch.copysign(x, y),
            torch.special.i0e(x),
            torch.special.log_ndtr(x),
            x.sgn(),
            x.round(),
            torch.logit(x.sigmoid(), 1e-3),
            x[1] * y[:, :2][0, 0],
        ]

    check(
        fn,
        randn(4, 5, grad=True, dtype=torch.float64),
        randn(4, 5, seed=1, grad=True, dtype=torch.float64),
        torch.rand(4, 5).double().requires_grad_(),
    )


def test_second_derivatives() -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        p = x.abs() + 0.5
        total = (p**1.7 + x.tanh() * x.sigmoid() + p.log() + x.sin() * x**3 + torch.hypot(x, p) + x.erf()).sum()
        (g,) = torch.autograd.grad(total, x, create_graph=True)
        return [g]

    check(fn, randn(7, grad=True, dtype=torch.float64))


def test_complex_numbers() -> None:
    def fn(re: torch.Tensor, im: torch.Tensor) -> list[torch.Tensor]:
        z = torch.complex(re, im)
        p = torch.polar(re.abs(), im)
        return [
            z * p,
            z / p,
            z + 1j,
            z * (2 - 1j),
            z.abs(),
            z.angle(),
            z.conj() * p,
            z.real,
            z.imag,
            z.exp(),
            z.sqrt(),
            z.sgn(),
            z == p,
            z**2,
            (z.conj() + 1).resolve_conj(),
            torch.where(re > 0, z, 1j),
        ]

    check(fn, randn(6, grad=True), randn(6, seed=1, grad=True))


def test_division_of_integers_by_zero_raises() -> None:
    x, z = torch.tensor([1, 2], device="tpu"), torch.tensor([1, 0], device="tpu")
    for fn in (torch.floor_divide, torch.remainder, torch.fmod, lambda a, b: torch.div(a, b, rounding_mode="trunc")):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            fn(x, z).cpu()
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        (x // 0).cpu()


def test_filling_with_a_number_that_does_not_fit_raises() -> None:
    mask = torch.tensor([True, False], device="tpu")
    for dtype, number in ((torch.uint8, 300), (torch.int8, -200), (torch.float16, -1e9)):
        x = torch.zeros(2, dtype=dtype, device="tpu")
        with pytest.raises(RuntimeError, match="without overflow"):
            x.masked_fill(mask, number).cpu()
    check(
        lambda x, m: [x.masked_fill(m, -INF), x.masked_fill(m, -6e4), x.masked_fill(m, NAN)], torch.zeros(2).half(), mask.cpu()
    )


def test_refused_types_are_refused_at_the_call() -> None:
    b = torch.tensor([True], device="tpu")
    i = torch.tensor([2], device="tpu")
    for fn in (
        lambda: b - b,
        lambda: -b,
        lambda: i.mul_(0.5),
        lambda: i**-1,
        lambda: torch.add(i, i, alpha=0.5),
        lambda: torch.addcdiv(i, i, i),
    ):
        with pytest.raises(RuntimeError):
            fn()
    with pytest.raises(TypeError, match="complex32"):
        torch.complex(b.half(), b.half())


def test_a_schedule_of_numbers_compiles_once() -> None:
    x = torch.ones(3).to("tpu")
    (x * 0.5 + 1.0).clamp(0.1, 2.5).lerp(x, 0.2).cpu()
    compiles = lazytpu.metrics()["compiles"]
    for k in range(1, 5):
        (x * (0.5 + k) + k * 0.1).clamp(0.1 * k, 2.5 + k).lerp(x, 0.1 * k).cpu()
    assert lazytpu.metrics()["compiles"] == compiles
