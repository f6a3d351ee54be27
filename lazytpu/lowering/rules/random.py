"""Samplers. Parameters are runtime inputs, and so are the seed and the counter that a key is made of."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lazytpu.lowering import draws, prng
from lazytpu.lowering.context import Context, opmath
from lazytpu.lowering.registry import rule


def _is_float(dtype: np.dtype) -> bool:
    return jnp.issubdtype(dtype, jnp.floating)


@rule("uniform", numbers=("from", "to"), random=True)
def uniform(ctx: Context, self: Any, low: Any, high: Any, generator: Any) -> Any:
    dtype = ctx.dtype
    if jnp.issubdtype(dtype, jnp.complexfloating):
        parts = _uniform(ctx.key, (2, *ctx.shape), np.finfo(dtype).dtype, low, high)
        return jax.lax.complex(parts[0], parts[1])
    return _uniform(ctx.key, ctx.shape, dtype, low, high)


def _uniform(key: Any, shape: tuple[int, ...], dtype: np.dtype, low: Any, high: Any) -> Any:
    math = opmath(dtype)
    low, high = low.astype(dtype).astype(math), high.astype(dtype).astype(math)
    drawn = (draws.unit(key, shape, dtype) * (high - low) + low).astype(dtype)
    return jnp.where(drawn.astype(math) >= high, low.astype(dtype), drawn)  # rounding must not reach the open end


@rule("normal_", "normal_functional", numbers=("mean", "std"), random=True)
def normal(ctx: Context, self: Any, mean: Any, std: Any, generator: Any) -> Any:
    drawn = draws.normal(ctx.key, ctx.shape, ctx.dtype)
    return drawn * std.astype(drawn.real.dtype) + mean.astype(drawn.dtype)


@rule("normal.Tensor_Tensor", "normal.Tensor_float", "normal.float_Tensor", numbers=("mean", "std"), random=True)
def normal_tensor(ctx: Context, mean: Any, std: Any, generator: Any) -> Any:
    ctx.require(std >= 0, "normal expects all elements of std >= 0.0", RuntimeError)
    drawn = draws.normal(ctx.key, ctx.shape, ctx.dtype)
    return drawn * std.astype(drawn.real.dtype) + mean.astype(drawn.dtype)


@rule("log_normal", numbers=("mean", "std"), random=True)
def log_normal(ctx: Context, self: Any, mean: Any, std: Any, generator: Any) -> Any:
    drawn = draws.normal(ctx.key, ctx.shape, ctx.dtype)
    return jnp.exp(drawn * std.astype(drawn.dtype) + mean.astype(drawn.dtype))


@rule("cauchy", numbers=("median", "sigma"), random=True)
def cauchy(ctx: Context, self: Any, median: Any, sigma: Any, generator: Any) -> Any:
    u = draws.open_unit(ctx.key, ctx.shape, ctx.dtype)
    return median.astype(u.dtype) + sigma.astype(u.dtype) * jnp.tan(jnp.pi * (u - 0.5))


@rule("exponential", numbers=("lambd",), random=True)
def exponential(ctx: Context, self: Any, lambd: Any, generator: Any) -> Any:
    u = draws.open_unit(ctx.key, ctx.shape, ctx.dtype)
    return _positive(-jnp.log(u) / lambd.astype(u.dtype), ctx.dtype)


def _positive(x: Any, dtype: np.dtype) -> Any:
    """``x`` as ``dtype``, with what underflows kept above zero: users divide by it and take its logarithm."""
    info = jnp.finfo(dtype)
    # float16's subnormal numbers are common and kept; in wider dtypes the chip flushes them to zero.
    least = info.smallest_subnormal if dtype == np.float16 else info.tiny
    return jnp.where(x <= least, least, x).astype(dtype)


@rule("geometric", numbers=("p",), random=True)
def geometric(ctx: Context, self: Any, p: Any, generator: Any) -> Any:
    wide = ctx.dtype.itemsize > 4 or (ctx.dtype.itemsize == 4 and not _is_float(ctx.dtype))
    u = draws.open_unit(ctx.key, ctx.shape, np.dtype(np.float64 if wide else np.float32))
    return jnp.ceil(jnp.log(u) / jnp.log1p(-p.astype(u.dtype)))


def _largest(dtype: np.dtype) -> int:
    """The largest number that ``random_`` draws for ``dtype`` when it is given no end."""
    if dtype == np.bool_:
        return 1
    if _is_float(dtype):
        return 1 << draws.digits(dtype)
    return min(int(jnp.iinfo(dtype).max), (1 << 63) - 1)


def _whole(ctx: Context, low: Any, span: Any) -> Any:
    """Integers in [low, low + span), span 0 standing for all 64 bits."""
    narrow = ctx.dtype.itemsize <= 4 and not _is_float(ctx.dtype)
    drawn = draws.below(ctx.key, ctx.shape, span, wide=not narrow)
    return (low.astype(jnp.uint64) + drawn).astype(jnp.int64)


@rule("random", random=True)
def random(ctx: Context, self: Any, generator: Any) -> Any:
    return _whole(ctx, jnp.int64(0), jnp.uint64(_largest(ctx.dtype) + 1))


@rule("random.to", numbers=("to",), random=True)
def random_to(ctx: Context, self: Any, to: Any, generator: Any) -> Any:
    return _between(ctx, jnp.int64(0), to)


@rule("random.from", numbers=("from", "to"), random=True)
def random_from(ctx: Context, self: Any, low: Any, to: Any, generator: Any) -> Any:
    if to is None:
        return _whole(ctx, low, (jnp.int64(_largest(ctx.dtype)) - low).astype(jnp.uint64) + 1)
    return _between(ctx, low, to)


def _between(ctx: Context, low: Any, to: Any) -> Any:
    if _is_float(ctx.dtype):
        low, to = _representable(low, to, ctx.dtype)
    return _whole(ctx, low, (to - low).astype(jnp.uint64))


def _representable(low: Any, to: Any, dtype: np.dtype) -> tuple[Any, Any]:
    """The range narrowed as CPU does, so that no number in it rounds to one outside."""

    def grid(x: Any) -> Any:
        exponent = 63 - jax.lax.clz(jnp.abs(x))
        return jnp.int64(1) << jnp.maximum(exponent - draws.digits(dtype) + 1, 0)

    first, last = low + 1, to - 1
    rounded_first, rounded_last = first.astype(dtype).astype(jnp.int64), last.astype(dtype).astype(jnp.int64)
    low = jnp.where(rounded_first < low, rounded_first + grid(first), low)
    return low, jnp.where(rounded_last >= to, rounded_last - grid(last), to)


def _bernoulli(ctx: Context, p: Any) -> Any:
    math = opmath(p.dtype)
    ctx.require((p >= 0) & (p <= 1), "Expected p_in >= 0 && p_in <= 1 to be true, but got false.", RuntimeError)
    return draws.unit(ctx.key, ctx.shape, math) < jnp.broadcast_to(p, ctx.shape).astype(math)


@rule("bernoulli", random=True)
def bernoulli(ctx: Context, self: Any, generator: Any) -> Any:
    return _bernoulli(ctx, self)


@rule("bernoulli.p", numbers=("p",), random=True)
def bernoulli_p(ctx: Context, self: Any, p: Any, generator: Any) -> Any:
    return _bernoulli(ctx, p if ctx.dtype == np.float64 else p.astype(jnp.float32))


@rule("bernoulli.Tensor", random=True)
def bernoulli_tensor(ctx: Context, self: Any, p: Any, generator: Any) -> Any:
    return _bernoulli(ctx, p)


@rule("randperm.generator_out", random=True)
def randperm(ctx: Context, n: int, generator: Any, out: Any) -> Any:
    order = jax.random.bits(ctx.key, (n,), jnp.uint64)
    return jax.lax.sort((order, jnp.arange(n, dtype=jnp.int64)), num_keys=1)[1]


@rule("multinomial", random=True)
def multinomial(ctx: Context, self: Any, num_samples: int, replacement: bool, generator: Any) -> Any:
    weights = self.astype(opmath(self.dtype))
    ok = jnp.all((weights >= 0) & (weights < jnp.inf)) & jnp.all(jnp.any(weights > 0, axis=-1))
    ctx.require(ok, "invalid multinomial distribution: an inf, nan or negative weight, or a row that sums to 0", RuntimeError)
    if replacement and num_samples > 1:
        return _by_inversion(ctx, weights)
    # Exponential race: the categories with the largest log(weight / exponential); no weight, no chance.
    clock = -jnp.log(draws.open_unit(ctx.key, weights.shape, weights.dtype))
    return jax.lax.top_k(jnp.log(weights) - jnp.log(clock), num_samples)[1]


def _by_inversion(ctx: Context, weights: Any) -> Any:
    scaled = weights / jnp.max(weights, axis=-1, keepdims=True)
    sums = jnp.cumsum(scaled, axis=-1)
    # A parallel sum need not be monotone: a category without weight takes its predecessor's sum exactly.
    sums = jax.lax.cummax(jnp.where(scaled > 0, sums, 0), axis=sums.ndim - 1)
    total = sums[..., -1:]
    u = draws.unit(ctx.key, ctx.shape, weights.dtype) * total
    u = jnp.minimum(u, jnp.nextafter(total, jnp.zeros_like(total)))

    def search(row: Any, points: Any) -> Any:
        return jnp.searchsorted(row, points, side="right")

    return search(sums, u) if sums.ndim == 1 else jax.vmap(search)(sums, u)


@rule("poisson", random=True)
def poisson(ctx: Context, self: Any, generator: Any) -> Any:
    ctx.require(self >= 0, "invalid Poisson rate, expected rate to be non-negative", RuntimeError)
    return jax.random.poisson(prng.threefry_key(ctx.key), self.astype(opmath(self.dtype)), dtype=jnp.int64)


@rule("binomial", random=True)
def binomial(ctx: Context, count: Any, prob: Any, generator: Any) -> Any:
    math = opmath(ctx.dtype)
    count, prob = (jnp.broadcast_to(x, ctx.shape).astype(math) for x in (count, prob))
    ctx.require((count >= 0) & (prob >= 0) & (prob <= 1), "binomial expects count >= 0 and 0 <= prob <= 1", RuntimeError)
    drawn = jax.random.binomial(ctx.key, count, prob, dtype=math)
    return jnp.where(prob == 0, 0, jnp.where(prob == 1, count, drawn))


@rule("_standard_gamma", random=True)
def standard_gamma(ctx: Context, self: Any, generator: Any) -> Any:
    return _positive(jnp.exp(draws.gamma(ctx.key, self.astype(opmath(self.dtype)))), ctx.dtype)


@rule("_standard_gamma_grad")
def standard_gamma_grad(ctx: Context, self: Any, output: Any) -> Any:
    math = opmath(ctx.dtype)
    return jax.lax.random_gamma_grad(self.astype(math), output.astype(math))


@rule("_sample_dirichlet", random=True)
def sample_dirichlet(ctx: Context, self: Any, generator: Any) -> Any:
    logs = draws.gamma(ctx.key, self.astype(opmath(self.dtype)))
    drawn = jax.nn.softmax(logs, axis=-1) if self.ndim else jnp.ones_like(logs)
    info = jnp.finfo(ctx.dtype)
    return jnp.clip(drawn, info.tiny, 1 - info.epsneg)


@rule("rrelu_with_noise_functional", random=True)
def rrelu_with_noise(ctx: Context, self: Any, noise: Any, lower: Any, upper: Any, training: bool, generator: Any) -> Any:
    math = opmath(ctx.dtype)
    lower, upper = lower.astype(math), upper.astype(math)
    if not training:
        return jnp.where(self > 0, self, self.astype(math) * ((lower + upper) / 2)), noise
    slope = (draws.unit(ctx.key, ctx.shape, math) * (upper - lower) + lower).astype(self.dtype)
    return jnp.where(self > 0, self, self * slope), jnp.where(self > 0, jnp.ones_like(slope), slope)
