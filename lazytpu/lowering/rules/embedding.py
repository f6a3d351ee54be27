"""Looking rows up in a table, one by one or summed up in bags, and the gradients that go back to the rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lazytpu.lowering.context import Context, opmath
from lazytpu.lowering.registry import rule

_SUM, _MEAN, _MAX = range(3)
_OFFSETS = "offsets[0] has to be 0 and offsets[-1] can not be greater than input's length ({})"


def _checked(ctx: Context, indices: Any, rows: int) -> Any:
    """The indices, required to be those of rows: none is negative here."""
    if indices.size:
        ctx.require((indices >= 0) & (indices < rows), "index out of range in self")
    return indices


def _rows(table: Any, indices: Any) -> Any:
    """The rows at ``indices``; out of range the nearest, since the check raises."""
    if table.shape[0] == 0:
        return jnp.zeros((*indices.shape, *table.shape[1:]), table.dtype)
    return jnp.take(table, indices, axis=0, mode="clip")


def _scattered(values: Any, indices: Any, rows: int) -> Any:
    """A table with ``values`` summed up by row, those with an index out of range left out."""
    index = jnp.where(indices < 0, rows, indices)
    return jnp.zeros((rows, *values.shape[1:]), values.dtype).at[index].add(values, mode="drop")


def _by_frequency(values: Any, indices: Any, rows: int) -> Any:
    """``values`` divided by how often their index occurs."""
    count = _rows(_scattered(jnp.ones(indices.shape, values.dtype), indices, rows), indices)
    return values / jnp.maximum(count, 1)[:, None]


@rule("embedding")
def embedding(ctx: Context, weight: Any, indices: Any, padding_idx: int, scale_grad_by_freq: bool, sparse: bool) -> Any:
    return _rows(weight, _checked(ctx, indices, weight.shape[0]))


@rule("embedding_dense_backward")
def embedding_dense_backward(
    ctx: Context, grad_output: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    index = indices.reshape(-1)
    values = grad_output.astype(opmath(grad_output.dtype)).reshape(index.size, *ctx.shape[1:])
    if scale_grad_by_freq:
        values = _by_frequency(values, index, num_weights)
    return _scattered(values, jnp.where(index == padding_idx, num_weights, index), num_weights)


@rule("embedding_renorm", numbers=("max_norm",), static=("norm_type",))
def embedding_renorm(ctx: Context, self: Any, indices: Any, max_norm: Any, norm_type: float) -> Any:
    """Rows that are looked up are scaled down to ``max_norm``, each once."""
    index = _checked(ctx, indices, self.shape[0]).reshape(-1)
    used = jnp.zeros(self.shape[0], bool).at[index].set(True, mode="drop")
    x = self.astype(opmath(self.dtype))
    size = jnp.linalg.norm(x, norm_type, axis=1, keepdims=True)
    limit = max_norm.astype(x.dtype)
    return jnp.where(used[:, None] & (size > limit), x * (limit / (size + jnp.asarray(1e-7, x.dtype))), x)


# Bags


@rule("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    ctx: Context,
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Any,
    include_last_offset: bool,
    padding_idx: int,
) -> Any:
    """The bags, the bag of each index (one past the last for padding), the bags' sizes, and for maxima their rows."""
    count, rows = ctx.shape[0], weight.shape[0]
    index = _checked(ctx, indices, rows)
    starts = offsets[:count]
    if count:
        ctx.require((offsets[0] == 0) & (offsets[-1] <= index.size), _OFFSETS.format(index.size), RuntimeError)
    places = jnp.arange(index.size, dtype=offsets.dtype)
    bag = jnp.searchsorted(starts, places, side="right") - 1
    if include_last_offset:
        bag = jnp.where(places < offsets[-1], bag, count)
    counted = jnp.where(index == padding_idx, count, bag)
    values = _rows(weight, index).astype(opmath(weight.dtype))
    sizes = _scattered(jnp.ones(index.shape, jnp.int64), counted, count)
    chosen = jnp.zeros(ctx.outs[3].shape, index.dtype)
    if mode == _MAX:
        bags, chosen = _maxima(values, index, counted, sizes)
    else:
        if per_sample_weights is not None:
            values = values * per_sample_weights.astype(values.dtype)[:, None]
        bags = _scattered(values, counted, count)
        if mode == _MEAN:
            bags = bags / jnp.maximum(sizes, 1).astype(bags.dtype)[:, None]
    return bags, counted, jnp.pad(sizes, (0, ctx.outs[2].shape[0] - count)), chosen


def _maxima(values: Any, index: Any, bag: Any, sizes: Any) -> tuple[Any, Any]:
    """The largest of each bag and column, and the row it is from; 0 where a bag is empty."""
    count = sizes.shape[0]
    full = (sizes > 0)[:, None]
    largest = jax.ops.segment_max(values, bag, count)
    met = (values == _rows(largest, bag)) | jnp.isnan(values)
    places = jnp.where(met, jnp.arange(index.size)[:, None], index.size)
    first = jax.ops.segment_min(places, bag, count)
    return jnp.where(full, largest, 0), jnp.where(full, _rows(index, first), 0)


def _bag_gradient(
    grad: Any,
    indices: Any,
    bag: Any,
    sizes: Any,
    chosen: Any,
    rows: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Any,
) -> Any:
    count = grad.shape[0]
    grad = grad.astype(opmath(grad.dtype))
    sizes = sizes[:count]
    if mode == _MAX:
        row = jnp.where((sizes > 0)[:, None], chosen, rows)
        column = jnp.broadcast_to(jnp.arange(grad.shape[1]), row.shape)
        return jnp.zeros((rows, grad.shape[1]), grad.dtype).at[row, column].add(grad, mode="drop")
    if mode == _MEAN:
        grad = grad / jnp.maximum(sizes, 1).astype(grad.dtype)[:, None]
    values = _rows(grad, bag)
    if per_sample_weights is not None:
        values = values * per_sample_weights.astype(values.dtype)[:, None]
    if scale_grad_by_freq:
        values = _by_frequency(values, indices, rows)
    return _scattered(values, jnp.where(bag < count, indices, rows), rows)


@rule("_embedding_bag_backward")
def embedding_bag_backward(
    ctx: Context,
    grad: Any,
    indices: Any,
    offsets: Any,
    offset2bag: Any,
    bag_size: Any,
    maximum_indices: Any,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Any,
    padding_idx: int,
) -> Any:
    args = (grad, indices, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode)
    return _bag_gradient(*args, per_sample_weights)


@rule("_embedding_bag_dense_backward")
def embedding_bag_dense_backward(
    ctx: Context,
    grad: Any,
    indices: Any,
    offset2bag: Any,
    bag_size: Any,
    maximum_indices: Any,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Any,
    padding_idx: int,
) -> Any:
    args = (grad, indices, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode)
    return _bag_gradient(*args, per_sample_weights)


@rule("_embedding_bag_per_sample_weights_backward")
def embedding_bag_weights_backward(
    ctx: Context, grad: Any, weight: Any, indices: Any, offsets: Any, offset2bag: Any, mode: int, padding_idx: int
) -> Any:
    math = opmath(grad.dtype)
    products = _rows(grad, offset2bag).astype(math) * _rows(weight, indices).astype(math)
    return jnp.where(offset2bag < grad.shape[0], products.sum(1), 0)
