"""Factorisations, solvers and eigenproblems, in LAPACK's conventions of sign and order.

Errors of rank or definiteness are numbers in ``info``, which PyTorch reads; the ops that take
``check_errors`` have the program check them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import torch
from jax.lax import linalg

from lazytpu import dtypes
from lazytpu.lowering.context import Context
from lazytpu.lowering.registry import rule

_ERROR: type[Exception] = torch.linalg.LinAlgError


def _adjoint(x: Any) -> Any:
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def _absent(ctx: Context, index: int) -> Any:
    """An empty result of the type that PyTorch gives for what was not asked for."""
    out = ctx.outs[index]
    return jnp.zeros(out.shape, dtypes.to_numpy(out.dtype))


def _batched(x: Any, batch: tuple[int, ...]) -> Any:
    return jnp.broadcast_to(x, (*batch, *x.shape[-2:]))


def _with_common_batch(*matrices: Any) -> list[Any]:
    batch = jnp.broadcast_shapes(*(x.shape[:-2] for x in matrices))
    return [_batched(x, batch) for x in matrices]


def _is_vector_rhs(a: Any, b: Any) -> bool:
    """Whether ``b`` is a batch of vectors rather than of matrices, by NumPy's rule."""
    return b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])


def _failing_minor(a: Any) -> Any:
    """For each matrix the order of the first leading minor that is not positive, 0 if all are.

    Reads lower triangles.
    """
    n = a.shape[-1]

    def eliminate(j: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        rest, found = state
        pivot = rest[..., j, j].real
        found = jnp.where((found == 0) & ~(pivot > 0), j + 1, found)
        column = jnp.take(rest, j, axis=-1)
        update = column[..., :, None] * jnp.conj(column[..., None, :]) / jnp.where(pivot > 0, pivot, 1)[..., None, None]
        return rest - update.astype(rest.dtype), found

    return jax.lax.fori_loop(0, n, eliminate, (a, jnp.zeros(a.shape[:-2], jnp.int32)))[1]


def _cholesky(a: Any, upper: bool) -> tuple[Any, Any]:
    """The factor, and LAPACK's ``info``."""
    lower = _adjoint(a) if upper else a
    if 0 in lower.shape:
        return lower if not upper else _adjoint(lower), jnp.zeros(a.shape[:-2], jnp.int32)
    factor = linalg.cholesky(jnp.tril(lower), symmetrize_input=False)
    failed = ~jnp.all(jnp.isfinite(factor), axis=(-2, -1))
    info = jax.lax.cond(jnp.any(failed), _failing_minor, lambda x: jnp.zeros(x.shape[:-2], jnp.int32), lower)
    return _adjoint(factor) if upper else factor, jnp.where(failed, info, 0)


@rule("linalg_cholesky_ex")
def cholesky_ex(ctx: Context, self: Any, upper: bool, check_errors: bool) -> Any:
    factor, info = _cholesky(self, upper)
    if check_errors:
        ctx.require(info == 0, _NOT_POSITIVE, _ERROR)
    return factor, info


_NOT_POSITIVE = "linalg.cholesky: The factorization could not be completed because the input is not positive-definite"


@rule("cholesky")
def cholesky(ctx: Context, self: Any, upper: bool) -> Any:
    factor, info = _cholesky(self, upper)
    ctx.require(info == 0, _NOT_POSITIVE.replace("linalg.cholesky", "cholesky"), _ERROR)
    return factor


@rule("_cholesky_solve_helper")
def cholesky_solve(ctx: Context, self: Any, a: Any, upper: bool) -> Any:
    factor = _adjoint(a) if upper else a
    half = linalg.triangular_solve(factor, self, left_side=True, lower=True)
    return linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True, conjugate_a=True)


@rule("cholesky_inverse")
def cholesky_inverse(ctx: Context, self: Any, upper: bool) -> Any:
    identity = _batched(jnp.eye(self.shape[-1], dtype=self.dtype), self.shape[:-2])
    return cholesky_solve(ctx, identity, self, upper)


def _singular(lu: Any) -> Any:
    """LAPACK's ``info`` of an LU factorisation: the first pivot that is exactly zero, from 1."""
    zero = jnp.diagonal(lu, axis1=-2, axis2=-1) == 0
    if zero.shape[-1] == 0:
        return jnp.zeros(zero.shape[:-1], jnp.int32)
    return jnp.where(jnp.any(zero, -1), jnp.argmax(zero, -1) + 1, 0).astype(jnp.int32)


def _lu(a: Any) -> tuple[Any, Any]:
    """The packed factors, and LAPACK's pivots from 1."""
    if 0 in a.shape:
        return a, jnp.zeros((*a.shape[:-2], min(a.shape[-2:])), jnp.int32)
    lu, pivots, _ = linalg.lu(a)
    return lu, pivots + 1


def _unpacked(lu: Any) -> tuple[Any, Any]:
    m, n = lu.shape[-2:]
    k = min(m, n)
    return jnp.tril(lu[..., :, :k], -1) + jnp.eye(m, k, dtype=lu.dtype), jnp.triu(lu[..., :k, :])


def _permutation(pivots: Any, m: int) -> Any:
    if pivots.shape[-1] == 0 or 0 in pivots.shape:
        return jnp.broadcast_to(jnp.arange(m, dtype=jnp.int32), (*pivots.shape[:-1], m))
    return linalg.lu_pivots_to_permutation(pivots - 1, m)


def _permutation_matrix(pivots: Any, m: int, dtype: Any) -> Any:
    """``P`` such that ``A = P L U``."""
    order = _permutation(pivots, m)
    return (jnp.arange(m)[:, None] == order[..., None, :]).astype(dtype)


def _check_pivoted(pivot: bool) -> None:
    if not pivot:
        raise NotImplementedError("linalg.lu_factor: LU without pivoting is not implemented on 'tpu', as on the CPU")


@rule("linalg_lu_factor_ex")
def lu_factor_ex(ctx: Context, a: Any, pivot: bool, check_errors: bool) -> Any:
    _check_pivoted(pivot)
    lu, pivots = _lu(a)
    info = _singular(lu)
    if check_errors:
        ctx.require(info == 0, "torch.linalg.lu_factor: U is exactly singular", _ERROR)
    return lu, pivots, info


@rule("linalg_lu")
def lu(ctx: Context, a: Any, pivot: bool) -> Any:
    _check_pivoted(pivot)
    packed, pivots = _lu(a)
    return (_permutation_matrix(pivots, a.shape[-2], a.dtype), *_unpacked(packed))


@rule("lu_unpack")
def lu_unpack(ctx: Context, data: Any, pivots: Any, unpack_data: bool, unpack_pivots: bool) -> Any:
    p = _permutation_matrix(pivots, data.shape[-2], data.dtype) if unpack_pivots else _absent(ctx, 0)
    return (p, *_unpacked(data)) if unpack_data else (p, _absent(ctx, 1), _absent(ctx, 2))


@rule("linalg_lu_solve")
def lu_solve(ctx: Context, packed: Any, pivots: Any, b: Any, left: bool, adjoint: bool) -> Any:
    if 0 in ctx.shape or 0 in packed.shape:
        return jnp.zeros(ctx.shape, ctx.dtype)
    batch = ctx.shape[:-2]
    packed, b = _batched(packed, batch), _batched(b, batch)
    order = jnp.broadcast_to(_permutation(pivots, packed.shape[-1]), (*batch, packed.shape[-1]))
    if not left:  # X A = B is A^H X^H = B^H
        return _adjoint(_solve_packed(packed, order, _adjoint(b), not adjoint))
    return _solve_packed(packed, order, b, adjoint)


@rule("_linalg_solve_ex")
def solve_ex(ctx: Context, a: Any, b: Any, left: bool, check_errors: bool) -> Any:
    packed, pivots = _lu(a)
    info = _singular(packed)
    if check_errors:
        ctx.require(info == 0, "torch.linalg.solve: The solver failed because the input matrix is singular", _ERROR)
    if 0 in ctx.shape or 0 in a.shape:
        return jnp.zeros(ctx.shape, ctx.dtype), packed, pivots, info
    vector = _is_vector_rhs(a, b)
    columns = b[..., None] if vector else b
    batch = jnp.broadcast_shapes(a.shape[:-2], columns.shape[:-2])
    factors, columns = _batched(packed, batch), _batched(columns, batch)
    order = jnp.broadcast_to(_permutation(pivots, a.shape[-1]), (*batch, a.shape[-1]))
    if left:
        result = _solve_packed(factors, order, columns, adjoint=False)
    else:
        result = _adjoint(_solve_packed(factors, order, _adjoint(columns), adjoint=True))
    return result[..., 0] if vector else result, packed, pivots, info


def _solve_packed(packed: Any, order: Any, b: Any, adjoint: bool) -> Any:
    def solve(x: Any, lower: bool) -> Any:
        return linalg.triangular_solve(
            packed, x, left_side=True, lower=lower, transpose_a=adjoint, conjugate_a=adjoint, unit_diagonal=lower
        )

    if adjoint:
        inverse = jnp.argsort(order, axis=-1)
        return jnp.take_along_axis(solve(solve(b, lower=False), lower=True), inverse[..., None], axis=-2)
    return solve(solve(jnp.take_along_axis(b, order[..., None], axis=-2), lower=True), lower=False)


@rule("lazytpu::lu_determinant")
def lu_determinant(ctx: Context, packed: Any, pivots: Any) -> Any:
    """The determinant, its sign and the logarithm of its absolute value, from LU factors."""
    diagonal = jnp.diagonal(packed, axis1=-2, axis2=-1)
    swaps = jnp.sum(pivots != jnp.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype), axis=-1)
    parity = jnp.where(swaps % 2 == 1, -1, 1).astype(packed.dtype)
    return (
        parity * jnp.prod(diagonal, axis=-1),
        parity * jnp.prod(jnp.sign(diagonal), axis=-1),
        jnp.sum(jnp.log(jnp.abs(diagonal)), axis=-1),
    )


@rule("linalg_inv_ex")
def inv_ex(ctx: Context, a: Any, check_errors: bool) -> Any:
    packed, pivots = _lu(a)
    info = _singular(packed)
    if check_errors:
        ctx.require(info == 0, "linalg.inv: the input matrix is singular", _ERROR)
    if 0 in a.shape:
        return a, info
    identity = _batched(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape[:-2])
    return _solve_packed(packed, _permutation(pivots, a.shape[-1]), identity, adjoint=False), info


@rule("linalg_qr")
def qr(ctx: Context, a: Any, mode: str) -> Any:
    if 0 in a.shape:
        return tuple(_identity_like(ctx, i) for i in range(2))
    if mode == "r":
        return _absent(ctx, 0), jnp.linalg.qr(a, mode="r")
    q, r = linalg.qr(a, full_matrices=mode == "complete")
    return q, jnp.triu(r)


def _identity_like(ctx: Context, index: int) -> Any:
    """A factor of an empty matrix: the leading columns of the identity."""
    out = ctx.outs[index]
    if len(out.shape) < 2:
        return _absent(ctx, index)
    rows, columns = out.shape[-2:]
    return jnp.broadcast_to(jnp.eye(rows, columns, dtype=dtypes.to_numpy(out.dtype)), out.shape)


@rule("geqrf")
def geqrf(ctx: Context, a: Any) -> Any:
    reflectors, tau = jnp.linalg.qr(a, mode="raw")
    return jnp.swapaxes(reflectors, -1, -2), tau


@rule("linalg_householder_product")
def householder_product(ctx: Context, a: Any, tau: Any) -> Any:
    return linalg.householder_product(a, tau) if 0 not in a.shape else a


@rule("ormqr")
def ormqr(ctx: Context, a: Any, tau: Any, other: Any, left: bool, transpose: bool) -> Any:
    m = other.shape[-2] if left else other.shape[-1]
    # Q in full: reflectors beyond those given are the identity.
    padded = jnp.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, m - a.shape[-1])])
    scales = jnp.pad(tau, [(0, 0)] * (tau.ndim - 1) + [(0, m - tau.shape[-1])])
    q = linalg.householder_product(padded, scales)
    q = _adjoint(q) if transpose else q
    return jnp.matmul(q, other) if left else jnp.matmul(other, q)


@rule("_linalg_eigh")
def eigh(ctx: Context, a: Any, uplo: str, compute_v: bool) -> Any:
    if 0 in a.shape:
        return _absent(ctx, 0), _absent(ctx, 1)
    vectors, values = linalg.eigh(a, lower=uplo.upper() == "L", symmetrize_input=False)
    return values, vectors if compute_v else _absent(ctx, 1)


@rule("linalg_eig")
def eig(ctx: Context, a: Any) -> Any:
    if 0 in a.shape:
        return _absent(ctx, 0), _absent(ctx, 1)
    values, vectors = linalg.eig(a, compute_left_eigenvectors=False)
    return values, vectors


@rule("_linalg_eigvals")
def eigvals(ctx: Context, a: Any) -> Any:
    if 0 in a.shape:
        return _absent(ctx, 0)
    return linalg.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]


@rule("_linalg_svd")
def svd(ctx: Context, a: Any, full_matrices: bool, compute_uv: bool, driver: str | None) -> Any:
    if 0 in a.shape:
        return _identity_like(ctx, 0), _absent(ctx, 1), _identity_like(ctx, 2)
    if not compute_uv:
        return _absent(ctx, 0), linalg.svd(a, compute_uv=False), _absent(ctx, 2)
    return linalg.svd(a, full_matrices=full_matrices)


@rule("triangular_solve")
def triangular_solve(ctx: Context, self: Any, a: Any, upper: bool, transpose: bool, unitriangular: bool) -> Any:
    a, b = _with_common_batch(a, self)
    solution = linalg.triangular_solve(
        a, b, left_side=True, lower=not upper, transpose_a=transpose, unit_diagonal=unitriangular
    )
    return solution, a


@rule("linalg_solve_triangular")
def solve_triangular(ctx: Context, self: Any, b: Any, upper: bool, left: bool, unitriangular: bool) -> Any:
    a, b = _with_common_batch(self, b)
    return linalg.triangular_solve(a, b, left_side=left, lower=not upper, unit_diagonal=unitriangular)


@rule("linalg_matrix_exp")
def matrix_exp(ctx: Context, a: Any) -> Any:
    return jax.scipy.linalg.expm(a, max_squarings=64) if 0 not in a.shape else a


@rule("lazytpu::lstsq")
def lstsq(ctx: Context, a: Any, b: Any, rcond: Any) -> Any:
    """The least-norm solution, its squared residuals, the rank and the singular values.

    ``rcond`` is the ratio to the largest singular value below which the others count as zero.
    """
    u, s, vh = linalg.svd(a, full_matrices=False)
    kept = s > rcond.astype(s.dtype) * s[..., :1]
    inverse = jnp.where(kept, 1 / jnp.where(kept, s, 1), 0).astype(a.dtype)
    solution = jnp.matmul(_adjoint(vh), inverse[..., None] * jnp.matmul(_adjoint(u), b))
    residuals = jnp.sum(jnp.square(jnp.abs(jnp.matmul(a, solution) - b)), axis=-2)
    return solution, residuals, jnp.sum(kept, axis=-1, dtype=jnp.int64), s
