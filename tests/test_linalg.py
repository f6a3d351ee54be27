"""Linear algebra against CPU: values where they are unique, products where signs are free, gradients, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import check, randn

LA = torch.linalg
DTYPES = (torch.float32, torch.complex128)


def matrix(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0, grad: bool = False) -> torch.Tensor:
    """Random entries from a seed, complex where asked."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_(grad)


def definite(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    x = matrix(*shape, dtype=dtype, seed=seed)
    return x @ x.mH + torch.eye(shape[-1], dtype=dtype)


def hermitian(x: torch.Tensor) -> torch.Tensor:
    return x + x.mH


def test_lu() -> None:
    for dtype in DTYPES:
        a, b = matrix(2, 4, 4, dtype=dtype), matrix(2, 4, 3, dtype=dtype, seed=1)
        check(lambda a: [*LA.lu_factor_ex(a), *LA.lu(a), *torch.lu_unpack(*LA.lu_factor(a)), LA.det(a), *LA.slogdet(a)], a)
        check(lambda a: [*LA.lu(a[..., :3]), *LA.lu_factor(a[..., :2, :])], a)

        def solves(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
            factors = LA.lu_factor(a)
            results = [LA.lu_solve(*factors, b, adjoint=adjoint) for adjoint in (False, True)]
            results += [LA.lu_solve(*factors, b.mT, left=False, adjoint=adjoint) for adjoint in (False, True)]
            return results

        check(solves, a, b)
    check(lambda a: [LA.det(a), *LA.slogdet(a)], torch.zeros(0, 0))
    singular = torch.tensor([[1.0, 2], [2, 4]])
    check(lambda a: [LA.det(a), *LA.slogdet(a), LA.lu_factor_ex(a).info], singular)


def test_solve_and_inverse() -> None:
    for dtype in DTYPES:
        a, b = matrix(2, 4, 4, dtype=dtype), matrix(4, 3, dtype=dtype, seed=1)
        check(
            lambda a, b: [LA.solve(a, b), LA.solve(a, b[:, 0]), LA.solve(a[0], b.T, left=False), LA.inv(a), a[0].inverse()],
            a,
            b,
            rtol=1e-3 if dtype is torch.float32 else None,
            atol=1e-4 if dtype is torch.float32 else None,
        )
    a, b = matrix(3, 3), matrix(3, 2, seed=1)
    check(lambda a: [LA.inv_ex(a).info, LA.solve_ex(a, a).info], torch.zeros(2, 2))
    check(lambda a, b: [LA.solve(a, b), LA.inv(a)], torch.zeros(0, 0), torch.zeros(0, 2))
    check(lambda a, b: [LA.tensorsolve(a, b), LA.tensorinv(a, 1), LA.matrix_power(a, -3)], a, b[:, 0])


def test_solver_gradients() -> None:
    """Also for the transposed strides, whose factors PyTorch expects the other way round."""
    for dtype in (torch.float64, torch.complex128):
        a, b = matrix(2, 3, 3, dtype=dtype, grad=True), matrix(2, 3, 2, dtype=dtype, seed=1, grad=True)
        check(lambda a, b: [LA.solve(a, b), LA.solve(a.mT, b), LA.solve(a, b.mT, left=False)], a, b)
        check(lambda a: [LA.det(a), LA.det(a.mT), *LA.slogdet(a), LA.slogdet(a.mT)[1], LA.inv(a), LA.matrix_exp(a)], a)
        check(lambda a, b: [LA.solve_triangular(a, b, upper=True), LA.lu_solve(*LA.lu_factor(a), b), LA.lu(a)[1]], a, b)

    def twice(a: torch.Tensor, b: torch.Tensor) -> Any:
        y = (LA.solve(a, b) ** 2).sum() + LA.det(a).sum()
        return torch.autograd.grad(y, (a, b), create_graph=True)

    check(twice, matrix(2, 3, 3, grad=True), matrix(2, 3, 2, seed=1, grad=True), rtol=1e-5)


def test_cholesky() -> None:
    for dtype in DTYPES:
        a, b = definite(2, 4, 4, dtype=dtype), matrix(2, 4, 3, dtype=dtype)

        def factors(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
            lower, upper = LA.cholesky(a), LA.cholesky(a, upper=True)
            results = [lower, upper, torch.cholesky_solve(b, lower), torch.cholesky_solve(b, upper, upper=True)]
            return [*results, torch.cholesky_inverse(lower), torch.cholesky_inverse(upper, upper=True), *LA.cholesky_ex(a)]

        check(factors, a, b, rtol=1e-3 if dtype is torch.float32 else None)
    # Only one triangle is read.
    check(lambda a: [LA.cholesky(a.tril()), LA.cholesky(a.triu(), upper=True), torch.cholesky(a)], definite(3, 3))
    x = matrix(3, 3, grad=True)
    check(lambda x: [LA.cholesky(x @ x.mT + 1), LA.cholesky(x @ x.mT + 1, upper=True)], x)
    check(lambda x: torch.cholesky_solve(x, LA.cholesky(x @ x.mT + 1)), x)
    bad = torch.stack([definite(3, 3), -torch.eye(3).double(), torch.diag(torch.tensor([1.0, 2, -1]).double())])
    check(lambda a: LA.cholesky_ex(a).info, bad)
    check(lambda a: [LA.cholesky(a), *LA.cholesky_ex(a)], torch.zeros(2, 0, 0))


def test_qr() -> None:
    for dtype in DTYPES:
        for shape in ((2, 4, 3), (3, 4), (4, 4)):
            a = matrix(*shape, dtype=dtype)
            check(lambda a: [*LA.qr(a), *LA.qr(a, "complete"), LA.qr(a, "r").R], a)
    check(lambda a: [*LA.qr(a), LA.qr(a, "complete").R], torch.zeros(0, 3))
    a = matrix(4, 3)

    def reflectors(a: torch.Tensor) -> list[torch.Tensor]:
        packed, tau = torch.geqrf(a)
        other = a.flip(0)
        products = [torch.ormqr(packed, tau, other), torch.ormqr(packed, tau, other, transpose=True)]
        return [packed, tau, LA.householder_product(packed, tau), *products, torch.ormqr(packed, tau, other.mT, left=False)]

    check(reflectors, a)
    check(lambda a: list(LA.qr(a)), matrix(4, 3, grad=True))
    check(lambda a: LA.qr(a[:, :2], "complete").R, matrix(4, 3))


def test_eigh() -> None:
    for dtype in DTYPES:
        a = hermitian(matrix(2, 4, 4, dtype=dtype))

        def spectrum(a: torch.Tensor) -> list[torch.Tensor]:
            values, vectors = LA.eigh(a)
            rebuilt = vectors @ (values.to(vectors.dtype)[..., None] * vectors.mH)
            return [values, rebuilt, vectors.mH @ vectors, LA.eigvalsh(a), LA.eigvalsh(a, UPLO="U")]

        check(spectrum, a)
    check(lambda a: [LA.eigh(a.tril()).eigenvalues, LA.eigvalsh(a.triu(), "U")], hermitian(matrix(4, 4)))
    check(lambda a: [LA.eigvalsh(a + a.mT), LA.eigh(a + a.mT)[1].abs()], matrix(3, 3, grad=True))
    check(lambda a: list(LA.eigh(a)), torch.zeros(0, 0))


def test_eig() -> None:
    for dtype in DTYPES:
        a = matrix(2, 4, 4, dtype=dtype)

        def rebuilt(a: torch.Tensor) -> list[torch.Tensor]:
            values, vectors = LA.eig(a)
            restored = vectors @ (values[..., None] * LA.inv(vectors))
            return [restored, values.sum(-1), LA.eigvals(a).prod(-1), vectors.abs().square().sum(-2)]

        check(rebuilt, a, rtol=1e-3, atol=1e-4)


def test_svd() -> None:
    for dtype in DTYPES:
        for shape in ((2, 4, 3), (3, 4)):
            a = matrix(*shape, dtype=dtype)

            def spectrum(a: torch.Tensor) -> list[torch.Tensor]:
                u, s, vh = LA.svd(a, full_matrices=False)
                full_u, _, full_vh = LA.svd(a)
                rebuilt = u @ (s.to(u.dtype)[..., None] * vh)
                return [s, rebuilt, LA.svdvals(a), full_u @ full_u.mH, full_vh @ full_vh.mH]

            check(spectrum, a)
    check(lambda a: [LA.svdvals(a), LA.svd(a, full_matrices=False)[0].abs()], matrix(4, 3, grad=True))
    check(lambda a: [*LA.svd(a), LA.svdvals(a)], torch.zeros(0, 3))


def test_from_svd() -> None:
    a = matrix(5, 3)
    low = a @ torch.tensor([[1.0, 0, 1], [0, 1, 1], [0, 0, 0]]).double()
    check(lambda a: [LA.pinv(a), LA.matrix_rank(a), LA.cond(a), LA.matrix_norm(a, 2)], a)
    check(lambda low: [LA.pinv(low), LA.matrix_rank(low)], low)
    check(lambda a: [LA.matrix_norm(a, "nuc"), LA.pinv(a.mT @ a, hermitian=True), LA.cond(a[:3], 1)], a)
    check(lambda a: [LA.pinv(a), LA.matrix_norm(a, "nuc")], matrix(4, 3, grad=True))


def test_least_squares() -> None:
    for dtype in DTYPES:
        a, b = matrix(2, 5, 3, dtype=dtype), matrix(2, 5, 2, dtype=dtype, seed=1)
        check(lambda a, b: [t for d in ("gelsy", "gelsd", "gelss", "gels") for t in LA.lstsq(a, b, driver=d)], a, b)
        check(lambda a, b: list(LA.lstsq(a[0].mT, b[0, :3])), a, b)
    check(lambda a, b: LA.lstsq(a, b).solution, matrix(4, 3, grad=True), matrix(4, 2, seed=1, grad=True))
    low = matrix(5, 3)[:, [0, 1, 1]]
    check(lambda a, b: [t for d in ("gelsy", "gelsd") for t in LA.lstsq(a, b, driver=d)], low, matrix(5, 1))


def test_triangular() -> None:
    for dtype in DTYPES:
        a, b = matrix(2, 3, 3, dtype=dtype) + 3 * torch.eye(3), matrix(3, 2, dtype=dtype, seed=1)

        def solves(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
            sides = [(upper, unit) for upper in (True, False) for unit in (True, False)]
            results = [LA.solve_triangular(a, b, upper=upper, unitriangular=unit) for upper, unit in sides]
            results.append(LA.solve_triangular(a, b.mT, upper=True, left=False))
            for upper in (True, False):
                results += torch.triangular_solve(b, a, upper=upper)
                results.append(torch.triangular_solve(b, a, upper=upper, transpose=True, unitriangular=True)[0])
            return results

        check(solves, a, b)


def test_matrix_exp() -> None:
    for dtype in DTYPES:
        a = matrix(2, 4, 4, dtype=dtype)
        check(lambda a: [LA.matrix_exp(x) for x in (a, a * 5, a[0] * 1e-3, a[:, :1, :1])], a, rtol=1e-3)
    check(LA.matrix_exp, torch.zeros(0, 2, 2))


def test_out_and_views() -> None:
    a = definite(4, 4)

    def outs(a: torch.Tensor) -> list[torch.Tensor]:
        view, out = a[::2, ::2], torch.zeros(0, dtype=a.dtype, device=a.device)
        LA.inv(view, out=out)
        return [out, LA.cholesky(a.t()), LA.det(a[1:, 1:]), LA.solve(a.t(), a[:, 1])]

    check(outs, a)


REFUSED: list[Callable[[str], Any]] = [
    lambda d: LA.cholesky(-torch.eye(3, device=d)),
    lambda d: LA.cholesky(torch.stack([torch.eye(2), -torch.eye(2)]).to(d)),
    lambda d: LA.inv(torch.zeros(2, 2, device=d)),
    lambda d: LA.solve(torch.zeros(2, 2, device=d), torch.ones(2, device=d)),
    lambda d: LA.inv(torch.ones(2, 3, device=d)),
    lambda d: LA.solve(torch.ones(2, 2, device=d), torch.ones(3, device=d)),
    lambda d: LA.det(torch.ones(2, 3, device=d)),
    lambda d: LA.eigh(torch.ones(2, 3, device=d)),
    lambda d: LA.lstsq(torch.ones(3, 2, device=d), torch.ones(4, 2, device=d)),
    lambda d: LA.inv(torch.ones(2, 2, dtype=torch.int64, device=d)),
    lambda d: LA.lu_factor(torch.eye(2, device=d), pivot=False),
]


@pytest.mark.parametrize("refused", REFUSED)
def test_refused(refused: Callable[[str], Any]) -> None:
    with pytest.raises(Exception) as expected:
        refused("cpu")
    with pytest.raises(expected.type) as actual:
        refused("tpu")
    if expected.type is LA.LinAlgError:
        assert str(actual.value) == str(expected.value)


def test_checked_by_the_program() -> None:
    with pytest.raises(LA.LinAlgError):
        LA.cholesky_ex(-torch.eye(2, device="tpu"), check_errors=True).L.cpu()
    with pytest.raises(LA.LinAlgError):
        LA.inv_ex(torch.zeros(2, 2, device="tpu"), check_errors=True).inverse.cpu()


def test_random_normal_round_trip() -> None:
    check(lambda a: LA.solve(a, a), randn(3, 3))
