"""Samplers: ranges, moments, independence, reproducibility, and what they refuse."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import check, randn
from torch.utils.checkpoint import checkpoint

import lazytpu

N = 20000
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
HALVES = (torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


@pytest.fixture(autouse=True)
def _no_fallback() -> Any:
    before = lazytpu.metrics()["cpu_fallbacks"]
    yield
    assert lazytpu.metrics()["cpu_fallbacks"] == before


def empty(dtype: torch.dtype = torch.float32, *shape: int) -> torch.Tensor:
    return torch.empty(shape or (N,), dtype=dtype, device="tpu")


def host(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors on the CPU as float64, all computed by one program."""
    lazytpu.sync()
    return [t.cpu().double() for t in tensors]


def moments(x: torch.Tensor, mean: float, std: float, sigmas: float = 5.0) -> None:
    """Assert the sample mean (within ``sigmas`` standard errors) and the standard deviation (within 5 %)."""
    assert abs(x.mean().item() - mean) < sigmas * std / x.numel() ** 0.5 + 1e-3 * abs(mean)
    assert abs(x.std().item() / std - 1) < 0.05


def correlation(x: torch.Tensor, y: torch.Tensor) -> float:
    return torch.corrcoef(torch.stack([x.double(), y.double()]))[0, 1].abs().item()


def test_uniform() -> None:
    torch.manual_seed(0)
    plain = host([torch.rand(N, dtype=d, device="tpu") for d in FLOATS])
    ranged = host([empty(d).uniform_(-3, 0.1) for d in FLOATS])
    for x, y, dtype in zip(plain, ranged, FLOATS):
        assert x.min() >= 0 and x.max() < 1
        moments(x, 0.5, 12**-0.5)
        assert y.min() >= -3 and y.max() < torch.tensor(0.1, dtype=dtype)
        moments(y, -1.45, 3.1 * 12**-0.5)
        assert (x[:, None] * 2 ** {torch.bfloat16: 8, torch.float16: 11}.get(dtype, 53) % 1 == 0).all()
        assert (1 - x).log().isfinite().all()
    bins = torch.histc(plain[0], 100, 0, 1)
    assert ((bins - N / 100) ** 2 / (N / 100)).sum() < 170  # chi-square, 99 degrees of freedom
    assert plain[2].unique().numel() == 256
    z = torch.rand(N, dtype=torch.complex64, device="tpu").cpu()
    assert correlation(z.real, z.imag) < 0.03 and z.real.max() < 1 and z.imag.max() < 1


def test_normal() -> None:
    torch.manual_seed(0)
    for x in host([torch.randn(N, dtype=d, device="tpu") for d in FLOATS]):
        moments(x, 0, 1)
        assert abs(x.pow(3).mean()) < 0.12 and abs(x.pow(4).mean() - 3) < 0.3
    mean, std = torch.linspace(-2, 2, 4).to("tpu").expand(N, 4), torch.tensor([1.0, 2, 3, 4], device="tpu")
    a, b, c, d, e, f = host(
        [
            empty().normal_(5, 3),
            torch.normal(mean, std),
            torch.normal(mean, 0.5),
            torch.normal(1.0, std.expand(N, 4)),
            torch.normal(2.0, 3.0, (N,), device="tpu"),
            torch.ops.aten.normal_functional(empty(), 1.0, 2.0),
        ]
    )
    moments(a, 5, 3)
    for i in range(4):
        moments(b[:, i], -2 + 4 * i / 3, 1 + i)
        moments(c[:, i], -2 + 4 * i / 3, 0.5)
        moments(d[:, i], 1, 1 + i)
    moments(e, 2, 3)
    moments(f, 1, 2)
    z = torch.randn(N, dtype=torch.complex64, device="tpu").cpu()
    moments(z.real, 0, 0.5**0.5)
    moments(z.imag, 0, 0.5**0.5)
    out = torch.empty(0, device="tpu")
    assert torch.normal(mean, std, out=out) is out and out.shape == (N, 4)


def test_other_floats() -> None:
    torch.manual_seed(0)
    names = ["exponential", "cauchy", "log_normal", "geometric"]
    fills: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda t: t.exponential_(2),
        lambda t: t.cauchy_(1, 2),
        lambda t: t.log_normal_(0.5, 0.25),
        lambda t: t.geometric_(0.25),
    ]
    for dtype in FLOATS:
        drawn = dict(zip(names, host([f(empty(dtype)) for f in fills])))
        x = drawn["exponential"]
        moments(x, 0.5, 0.5)
        assert x.min() > 0 and x.max() < 100
        x = drawn["cauchy"]
        assert dtype is torch.float16 or x.isfinite().all()  # CPU's overflow in float16 too
        assert abs(x.median() - 1) < 0.1
        assert abs(((x > -1) & (x < 3)).double().mean() - 0.5) < 0.03
        moments(drawn["log_normal"].log(), 0.5, 0.25)
        moments(drawn["geometric"], 4, 12**0.5)
        assert drawn["geometric"].min() == 1 and (drawn["geometric"] % 1 == 0).all()
    tiny = host([empty(d).exponential_(1e30) for d in FLOATS])
    assert all((x > 0).all() for x in tiny)
    for x in host([empty(d).geometric_(0.25) for d in INTEGERS[:5]]):
        moments(x, 4, 12**0.5)


def test_integers() -> None:
    torch.manual_seed(0)
    for x, dtype in zip(host([empty(d).random_() for d in INTEGERS]), INTEGERS):
        top = 1 if dtype is torch.bool else torch.iinfo(dtype).max
        assert x.min() >= 0 and x.max() <= top
        moments(x, top / 2, top * (12**-0.5 if top > 1 else 0.5))
    for x, bits in zip(host([empty(d).random_() for d in FLOATS]), (24, 53, 8, 11)):
        assert x.min() >= 0 and x.max() <= 2**bits and (x % 1 == 0).all()
        moments(x, 2**bits / 2, 2**bits * 12**-0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranges = host([empty(d).random_(-3, 1000) for d in FLOATS])
    for x, top in zip(ranges, (999, 999, 996, 999)):  # bfloat16: the largest multiple of 4 that CPU leaves in range
        assert x.min() == -3 and x.max() <= top
    a, b, c, d, e = (
        torch.randint(-3, 4, (N,), device="tpu").cpu(),
        torch.randint(-(2**63), 2**63 - 1, (N,), device="tpu").cpu(),
        empty(torch.int64).random_(-(2**63), None).cpu(),
        torch.randint(2**62, 2**62 + 3, (N,), device="tpu").cpu(),
        torch.randint(0, 3 * 2**61, (N,), device="tpu").cpu(),
    )
    assert a.unique().tolist() == [-3, -2, -1, 0, 1, 2, 3]
    assert max((a == i).double().mean().sub(1 / 7).abs() for i in range(-3, 4)) < 0.015
    for x in (b, c):
        assert x.min() < -(2**62.9) and x.max() > 2**62.9
        assert abs((x > 0).double().mean() - 0.5) < 0.02 and abs((x & 1).double().mean() - 0.5) < 0.02
    assert d.unique().tolist() == [2**62, 2**62 + 1, 2**62 + 2]
    assert abs((e < 3 * 2**60).double().mean() - 0.5) < 0.02 and (e < 3 * 2**61).all()
    like = torch.randint_like(torch.zeros(N, device="tpu"), 2, 5)
    assert like.dtype is torch.float32 and like.cpu().unique().tolist() == [2, 3, 4]


def test_bernoulli() -> None:
    torch.manual_seed(0)
    p = torch.tensor([0.0, 0.25, 1.0])
    drawn = [torch.bernoulli(p.to("tpu", d).expand(N, 3)) for d in FLOATS]
    drawn += [empty(d, N, 3).bernoulli_(p.to("tpu")) for d in (torch.float32, torch.int32, torch.bool)]
    for x in host(drawn):
        assert x[:, 0].sum() == 0 and x[:, 2].sum() == N
        moments(x[:, 1], 0.25, (0.25 * 0.75) ** 0.5)
    scalars = [torch.bernoulli(torch.zeros(N, device="tpu"), q) for q in (0.0, 0.25, 1.0)]
    scalars += [empty(d).bernoulli_(0.25) for d in (torch.float64, torch.bfloat16, torch.int64, torch.bool)]
    zero, quarter, one, *others = host(scalars)
    assert zero.sum() == 0 and one.sum() == N
    for x in (quarter, *others):
        moments(x, 0.25, (0.25 * 0.75) ** 0.5)
    q = torch.full((3,), 0.5, device="tpu", requires_grad=True)
    (torch.bernoulli(q) * q).sum().backward()
    assert q.grad is not None


def test_randperm() -> None:
    torch.manual_seed(0)
    a, b = torch.randperm(1000, device="tpu"), torch.randperm(1000, device="tpu")
    assert a.cpu().sort().values.equal(torch.arange(1000)) and not torch.equal(a.cpu(), b.cpu())
    assert torch.randperm(0, device="tpu").shape == (0,)
    assert torch.randperm(9, device="tpu", dtype=torch.float16).cpu().sort().values.tolist() == list(range(9))
    out = torch.empty(3, dtype=torch.int32, device="tpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.randperm(5, out=out)
    assert sorted(out.tolist()) == [0, 1, 2, 3, 4]
    firsts = torch.stack([torch.randperm(4, device="tpu").cpu() for _ in range(400)])
    assert all(60 < (firsts[:, i] == j).sum() < 140 for i in range(4) for j in range(4))


def test_multinomial() -> None:
    torch.manual_seed(0)
    w = torch.tensor([0.0, 1, 2, 0, 5, 0])
    for dtype in FLOATS:
        weights = w.to("tpu", dtype)
        drawn = torch.multinomial(weights, N, True)
        assert drawn.dtype is torch.int64
        f = torch.bincount(drawn.cpu(), minlength=6) / N
        assert (f - w / 8).abs().max() < 0.02 and (f[w == 0] == 0).all()
        once = torch.multinomial(weights.expand(4000, 6), 3).cpu()
        assert once.sort(1).values.unique(dim=0).tolist() == [[1, 2, 4]]
        assert abs((once[:, 0] == 4).double().mean() - 5 / 8) < 0.04
    rows = torch.multinomial(torch.stack([w, w.flip(0)]).to("tpu"), 500, True).cpu()
    assert rows[0].unique().tolist() == [1, 2, 4] and rows[1].unique().tolist() == [1, 3, 4]
    sparse = torch.zeros(5000)
    sparse[::37] = torch.rand(136)
    hits = torch.multinomial(sparse.to("tpu"), N, True).cpu()
    assert (sparse[hits] > 0).all()
    assert torch.multinomial(torch.ones(3, 4, device="tpu") * 1e38, 1).shape == (3, 1)
    out = torch.empty(0, dtype=torch.int64, device="tpu")
    torch.multinomial(w.to("tpu"), 2, out=out)
    assert out.shape == (2,)


def test_counts_and_gammas() -> None:
    torch.manual_seed(0)
    rate = torch.tensor([0.0, 0.5, 30.0], device="tpu").expand(N, 3)
    count, prob = torch.tensor([10.0, 100, 5, 5], device="tpu").expand(N, 4), torch.tensor([0.3, 0.8, 0.0, 1.0], device="tpu")
    shape = torch.tensor([0.2, 1.0, 7.0], device="tpu").expand(N, 3)
    a, b, c, d, e = host(
        [
            torch.poisson(rate),
            torch.binomial(count, prob.expand(N, 4)),
            torch._standard_gamma(shape),
            torch._sample_dirichlet(shape),
            torch._standard_gamma(shape.double()),
        ]
    )
    assert a[:, 0].sum() == 0
    moments(a[:, 1], 0.5, 0.5**0.5)
    moments(a[:, 2], 30, 30**0.5)
    moments(b[:, 0], 3, 2.1**0.5)
    moments(b[:, 1], 80, 4)
    assert (b[:, 2] == 0).all() and (b[:, 3] == 5).all()
    for x in (c, e):
        for i, k in enumerate((0.2, 1.0, 7.0)):
            assert (x[:, i] > 0).all() and abs(x[:, i].mean() / k - 1) < 0.06 and abs(x[:, i].std() / k**0.5 - 1) < 0.08
    assert torch.allclose(d.sum(1), torch.ones(N, dtype=torch.float64), atol=1e-5)
    assert (d.mean(0) - torch.tensor([0.2, 1.0, 7.0]) / 8.2).abs().max() < 0.01


def test_gamma_gradient() -> None:
    a = torch.tensor([0.1, 0.5, 1.0, 3.0, 20.0, 150.0]).repeat_interleave(4)
    x = a * torch.tensor([0.3, 0.8, 1.1, 1.9]).repeat(6)
    check(torch._standard_gamma_grad, a, x, rtol=3e-3)
    check(torch._standard_gamma_grad, a.double(), x.double(), rtol=3e-3)


def test_distributions() -> None:
    import torch.distributions as D

    torch.manual_seed(0)

    def t(*values: float) -> torch.Tensor:
        return torch.tensor(values, device="tpu")

    cases = [
        (D.Normal(t(1.0), t(2.0)), 1, 2),
        (D.Uniform(t(1.0), t(3.0)), 2, 2 * 12**-0.5),
        (D.Exponential(t(2.0)), 0.5, 0.5),
        (D.Gamma(t(3.0), t(2.0)), 1.5, 3**0.5 / 2),
        (D.Beta(t(2.0), t(3.0)), 0.4, 0.2),
        (D.Poisson(t(4.0)), 4, 2),
        (D.Bernoulli(t(0.3)), 0.3, 0.21**0.5),
        (D.Binomial(10, t(0.3)), 3, 2.1**0.5),
        (D.Laplace(t(1.0), t(2.0)), 1, 8**0.5),
        (D.Gumbel(t(0.0), t(1.0)), 0.5772, 1.2825),
        (D.Geometric(t(0.25)), 3, 12**0.5),
        (D.Chi2(t(3.0)), 3, 6**0.5),
    ]
    samples = [distribution.sample((N,)) for distribution, _, _ in cases]
    assert all(x.device.type == "tpu" for x in samples)
    for x, (_, mean, std) in zip(host(samples), cases):
        moments(x, mean, std)
    drawn = D.Categorical(torch.tensor([0.2, 0.0, 0.8], device="tpu")).sample((N,)).cpu()
    assert drawn.unique().tolist() == [0, 2]
    alpha = torch.tensor(3.0, device="tpu", requires_grad=True)
    D.Gamma(alpha, torch.tensor(1.0, device="tpu")).rsample((N,)).mean().backward()
    assert abs(alpha.grad.item() - 1) < 0.05


SAMPLERS: dict[str, Callable[[], torch.Tensor]] = {
    "rand": lambda: torch.rand(64, device="tpu"),
    "randn": lambda: torch.randn(64, device="tpu"),
    "randint": lambda: torch.randint(0, 1000, (64,), device="tpu"),
    "randperm": lambda: torch.randperm(64, device="tpu"),
    "bernoulli": lambda: torch.bernoulli(torch.full((64,), 0.5, device="tpu")),
    "exponential": lambda: torch.empty(64, device="tpu").exponential_(),
    "multinomial": lambda: torch.multinomial(torch.ones(64, device="tpu"), 32, True),
    "normal": lambda: torch.normal(torch.ones(64, device="tpu"), 1.0),
    "rand_like": lambda: torch.rand_like(torch.ones(64, device="tpu")),
    "gamma": lambda: torch._standard_gamma(torch.ones(64, device="tpu")),
}


def test_seeds_and_cuts() -> None:
    """The same seed gives the same numbers wherever traces are cut, and moving on compiles nothing."""

    def draws(cut: bool) -> list[torch.Tensor]:
        torch.manual_seed(7)
        drawn = []
        for sampler in [s for s in SAMPLERS.values() for _ in range(2)]:
            drawn.append(sampler())
            if cut:
                lazytpu.sync()
        return [t.cpu() for t in drawn]

    first, second = draws(False), draws(True)
    compiles = lazytpu.metrics()["compiles"]
    third = draws(True)
    assert lazytpu.metrics()["compiles"] == compiles
    for a, b, c in zip(first, second, third):
        assert torch.equal(a, b) and torch.equal(a, c)
    for name, a, b in zip(SAMPLERS, first[::2], first[1::2]):
        assert not torch.equal(a, b), name


def test_state_moves_without_recompiling() -> None:
    def step(low: float, high: float) -> torch.Tensor:
        x = torch.empty(8, device="tpu").uniform_(low, high) + torch.randint(0, int(high), (8,), device="tpu")
        return x.cpu()

    step(0, 1)
    compiles = lazytpu.metrics()["compiles"]
    for i in range(5):
        torch.manual_seed(i << 40)
        step(-i, i + 1.5)
    assert lazytpu.metrics()["compiles"] == compiles


def test_independence() -> None:
    """No correlation between draws, shapes, samplers, and seeds that differ in one bit, low or high."""

    def drawn(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return torch.rand(N, device="tpu").cpu()

    streams = [drawn(s) for s in (0, 1, 2, 1 << 31, 1 << 32, 1 << 33, 1 << 62, 2**63, 2**64 - 1, -1)]
    assert torch.equal(streams[-1], streams[-2])  # -1 is PyTorch's name for 2**64 - 1
    torch.manual_seed(0)
    u = torch.rand(N, device="tpu").cpu()
    streams[-1] = torch.rand(N, device="tpu").cpu()
    streams += [torch.rand(N // 100, 100, device="tpu").cpu().flatten(), torch.randn(N, device="tpu").cpu()]
    streams += [torch.rand(2 * N, device="tpu").cpu()[:N], torch.empty(N, device="tpu").exponential_().cpu()]
    assert torch.equal(u, streams[0])
    matrix = torch.corrcoef(torch.stack(streams).double()).fill_diagonal_(0)
    assert matrix.abs().max() < 0.035
    assert correlation(u[1:], u[:-1]) < 0.03
    grid = torch.stack([torch.rand(100, device="tpu").cpu() for _ in range(100)])
    assert correlation(grid[1:].flatten(), grid[:-1].flatten()) < 0.04


def test_other_process() -> None:
    drawn = "(torch.rand(4, device='tpu') + torch.randn(4, device='tpu')).cpu().tolist()"
    code = f"import torch, lazytpu\ntorch.manual_seed(11)\nprint({drawn})"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    torch.manual_seed(11)
    assert printed.strip() == str((torch.rand(4, device="tpu") + torch.randn(4, device="tpu")).cpu().tolist())


def test_views() -> None:
    """In-place samplers fill exactly the view, and aliases see it."""
    torch.manual_seed(0)
    fills: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda v: v.normal_(50, 1),
        lambda v: v.uniform_(10, 11),
        lambda v: v.exponential_(0.01),
        lambda v: v.random_(5, 9),
        lambda v: v.random_(9),
        lambda v: v.random_(),
        lambda v: v.log_normal_(),
        lambda v: v.cauchy_(),
        lambda v: v.geometric_(0.3),
        lambda v: v.bernoulli_(0.5),
        lambda v: v.bernoulli_(torch.full((4, 1), 0.5, device="tpu")),
    ]
    inside = torch.zeros(20, 20, dtype=torch.bool)
    inside.t()[3:11:2, 5:] = True
    bases = [torch.full((20, 20), -7.0, device="tpu") for _ in fills]
    for fill, base in zip(fills, bases):
        view = base.t()[3:11:2, 5:]
        assert fill(view) is view
    for base in host(bases):
        assert torch.equal(base != -7, inside)
    with pytest.raises(RuntimeError, match="more than one element"):
        torch.zeros(1, device="tpu").expand(4).normal_()


def test_cpu_generator() -> None:
    """A CPU generator draws on the CPU: the very numbers of CPU PyTorch."""
    fills: list[Callable[[str, torch.Generator], torch.Tensor]] = [
        lambda d, g: torch.rand(50, device=d, generator=g),
        lambda d, g: torch.randn(50, device=d, generator=g),
        lambda d, g: torch.randint(9, (50,), device=d, generator=g),
        lambda d, g: torch.randperm(50, device=d, generator=g),
        lambda d, g: torch.empty(7, 9, device=d).t().normal_(generator=g),
        lambda d, g: torch.zeros(7, 40, device=d)[::2, 3:].uniform_(2, 3, generator=g),
        lambda d, g: torch.bernoulli(torch.full((50,), 0.5, device=d), generator=g),
        lambda d, g: torch.multinomial(torch.arange(9.0, device=d), 4, generator=g),
        lambda d, g: torch.normal(torch.arange(9.0, device=d), 2.0, generator=g),
        lambda d, g: torch.poisson(torch.arange(9.0, device=d), generator=g),
        lambda d, g: torch.empty(20, dtype=torch.bfloat16, device=d).exponential_(generator=g),
        lambda d, g: torch.nn.init.trunc_normal_(torch.empty(20, device=d), generator=g),
        lambda d, g: torch.nn.init.kaiming_uniform_(torch.empty(5, 20, device=d), generator=g),
    ]
    on_cpu, for_tpu = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    torch.manual_seed(1)
    expected = torch.rand(3, device="tpu").cpu()
    torch.manual_seed(1)
    for fill in fills:
        assert torch.equal(fill("tpu", for_tpu).cpu(), fill("cpu", on_cpu))
    assert torch.equal(on_cpu.get_state(), for_tpu.get_state())
    assert torch.equal(torch.rand(3, device="tpu").cpu(), expected)


def test_tpu_generator() -> None:
    generator = torch.Generator("tpu").manual_seed(5)
    a = torch.rand(32, generator=generator, device="tpu").cpu()
    state = generator.get_state()
    b = torch.randn(32, generator=generator, device="tpu").cpu()
    generator.set_state(state)
    assert torch.equal(b, torch.randn(32, generator=generator, device="tpu").cpu())
    assert torch.equal(a, torch.rand(32, generator=torch.Generator("tpu").manual_seed(5), device="tpu").cpu())
    torch.manual_seed(3)
    expected = torch.rand(8, device="tpu").cpu()
    torch.manual_seed(3)
    torch.rand(8, generator=generator, device="tpu")
    assert torch.equal(torch.rand(8, device="tpu").cpu(), expected)


def test_checkpoint_replays() -> None:
    for reentrant in (False, True):
        x = torch.ones(500, device="tpu", requires_grad=True)
        y = checkpoint(lambda t: t * torch.bernoulli(torch.full_like(t, 0.5)), x, use_reentrant=reentrant)
        y.sum().backward()
        assert torch.equal(y.cpu() != 0, x.grad.cpu() != 0)


def test_rrelu() -> None:
    x = randn(50, 40, grad=True)
    check(lambda t: [F.rrelu(t, 0.1, 0.3), F.rrelu(t * 1, 0.1, 0.3, inplace=True)], x)
    y = randn(N, seed=1).to("tpu").requires_grad_()
    z = F.rrelu(y, 0.1, 0.3, training=True)
    z.sum().backward()
    slope = (z / y).detach().cpu()
    assert (slope[y.cpu() > 0] == 1).all()
    below = slope[y.cpu() < 0]
    assert below.min() >= 0.0999 and below.max() <= 0.3001
    moments(below, 0.2, 0.2 * 12**-0.5)
    assert torch.allclose(y.grad.cpu(), slope, atol=1e-5)
    w = y.detach().clone()
    assert F.rrelu(w, 0.1, 0.3, training=True, inplace=True) is w and abs((w / y).min().item() - 0.1) < 0.01


def test_initialisers() -> None:
    torch.manual_seed(0)
    w = torch.empty(100, 200, device="tpu")
    torch.nn.init.trunc_normal_(w, 1.0, 0.5, 0.5, 1.5)
    assert w.min() >= 0.5 and w.max() <= 1.5 and abs(w.mean().item() - 1) < 0.02
    torch.nn.init.kaiming_uniform_(w)
    assert w.abs().max().item() <= (6 / 200) ** 0.5
    torch.nn.init.xavier_normal_(w)
    moments(w.cpu(), 0, (2 / 300) ** 0.5)


REFUSED: list[Callable[[str], Any]] = [
    lambda d: torch.empty(3, device=d).uniform_(2, 1),
    lambda d: torch.empty(3, device=d).normal_(0, -1),
    lambda d: torch.empty(3, device=d).exponential_(0),
    lambda d: torch.empty(3, device=d).exponential_(-1),
    lambda d: torch.empty(3, device=d).cauchy_(0, 0),
    lambda d: torch.empty(3, device=d).log_normal_(0, 0),
    lambda d: torch.empty(3, device=d).geometric_(1.5),
    lambda d: torch.empty(3, device=d).geometric_(0),
    lambda d: torch.empty(3, device=d).bernoulli_(1.5),
    lambda d: torch.bernoulli(torch.empty(3, device=d), -0.5),
    lambda d: torch.empty(3, device=d).random_(5, 5),
    lambda d: torch.empty(3, device=d).random_(0),
    lambda d: torch.randint(5, 2, (3,), device=d),
    lambda d: torch.empty(3, dtype=torch.uint8, device=d).random_(0, 300),
    lambda d: torch.empty(3, dtype=torch.int8, device=d).random_(-200, 5),
    lambda d: torch.randint(0, 300, (3,), dtype=torch.uint8, device=d),
    lambda d: torch.empty(3, dtype=torch.int64, device=d).uniform_(),
    lambda d: torch.empty(3, dtype=torch.int64, device=d).normal_(),
    lambda d: torch.empty(3, dtype=torch.int64, device=d).exponential_(),
    lambda d: torch.rand(3, dtype=torch.int64, device=d),
    lambda d: torch.randperm(-1, device=d),
    lambda d: torch.randperm(300, dtype=torch.uint8, device=d),
    lambda d: torch.multinomial(torch.tensor([1.0, -1.0], device=d), 1),
    lambda d: torch.multinomial(torch.tensor([1.0, float("nan")], device=d), 1, True),
    lambda d: torch.multinomial(torch.tensor([1.0, float("inf")], device=d), 1),
    lambda d: torch.multinomial(torch.zeros(3, device=d), 1),
    lambda d: torch.multinomial(torch.zeros(2, 3, device=d), 2, True),
    lambda d: torch.multinomial(torch.ones(3, device=d), 4),
    lambda d: torch.multinomial(torch.ones(3, device=d), 0),
    lambda d: torch.multinomial(torch.ones(3, dtype=torch.int64, device=d), 1),
    lambda d: torch.multinomial(torch.ones(3, 3, 3, device=d), 1),
    lambda d: torch.normal(torch.ones(3, device=d), -1.0),
    lambda d: torch.normal(torch.ones(3, device=d), -torch.ones(3, device=d)),
    lambda d: torch.bernoulli(torch.full((3,), 1.5, device=d)),
    lambda d: torch.bernoulli(torch.full((3,), float("nan"), device=d)),
    lambda d: torch.zeros(3, device=d).bernoulli_(torch.full((3,), -0.5, device=d)),
    lambda d: torch.poisson(-torch.ones(3, device=d)),
]


def test_refused_parameters() -> None:
    """Parameters out of range raise on every call, not only on the first."""
    torch.rand(1, device="tpu").uniform_(1, 2).normal_().exponential_().cauchy_().log_normal_().geometric_(0.5).bernoulli_(0.5)
    for refused in REFUSED:
        with pytest.raises(Exception) as expected:
            refused("cpu")
        with pytest.raises(expected.type):
            refused("tpu").cpu()


def test_empty_and_scalar() -> None:
    for sampler in (torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.exponential_, torch.Tensor.random_):
        for shape in ((), (0,), (3, 0)):
            assert sampler(torch.empty(shape, device="tpu")).cpu().shape == shape
    assert torch.bernoulli(torch.ones((), device="tpu")).item() == 1
    assert torch._standard_gamma(torch.ones((), device="tpu")).item() > 0
    assert torch.multinomial(torch.ones(0, 3, device="tpu"), 2).shape == (0, 2)
