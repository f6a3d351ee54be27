"""Optimizers, list ops, gradient clipping and loss scaling: equal to CPU step by step, and compiled once."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import assert_same, integers, randn

import lazytpu

optim = torch.optim


def mlp() -> torch.nn.Module:
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3, bias=False))


def trained(device: str, make: Callable[[Any], Any], steps: int = 5, closure: bool = False) -> tuple[list[Any], list[int]]:
    """Losses, parameters and optimizer state after some steps under a scheduler, and the compiles after each step."""
    model = mlp().to(device)
    optimizer = make(model.parameters())
    scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.7) if not closure else None
    losses, compiles = [], []

    def loss_of(step: int) -> torch.Tensor:
        optimizer.zero_grad()
        loss = (model(randn(8, 4, seed=step).to(device)) - randn(8, 3, seed=100 + step).to(device)).pow(2).mean()
        loss.backward()
        return loss

    for step in range(steps):
        if closure:
            losses.append(optimizer.step(lambda step=step: loss_of(step)))
        else:
            losses.append(loss_of(step))
            optimizer.step()
            scheduler.step()
        lazytpu.sync(wait=True)
        compiles.append(lazytpu.metrics()["compiles"])
    state = [s for s in optimizer.state_dict()["state"].values() if s]
    return [losses, list(model.parameters()), [[t for t in s.values() if torch.is_tensor(t)] for s in state]], compiles


def same_as_cpu(make: Callable[[Any], Any], steady: bool = True, rtol: float | None = None, **options: Any) -> None:
    expected, _ = trained("cpu", make, **options)
    before = lazytpu.metrics()["cpu_fallbacks"]
    actual, compiles = trained("tpu", make, **options)
    assert_same(expected, actual, rtol=rtol)
    assert lazytpu.metrics()["cpu_fallbacks"] == before, [k for k in lazytpu.metrics() if k.startswith("cpu_fallback.")]
    if steady:
        assert compiles[2:] == [compiles[1]] * (len(compiles) - 2), f"compiled again: {compiles}"


OPTIMIZERS: dict[str, tuple[type, list[dict[str, Any]]]] = {
    "SGD": (optim.SGD, [{"lr": 0.1}, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}]),
    "Adam": (optim.Adam, [{"lr": 0.02, "weight_decay": 0.01, "amsgrad": True}]),
    "AdamW": (optim.AdamW, [{"lr": 0.02, "maximize": True}]),
    "Adagrad": (optim.Adagrad, [{"lr": 0.05, "lr_decay": 0.1, "weight_decay": 0.01}]),
    "Adadelta": (optim.Adadelta, [{"lr": 0.5, "weight_decay": 0.01}]),
    "Adamax": (optim.Adamax, [{"lr": 0.02}]),
    "ASGD": (optim.ASGD, [{"lr": 0.05}]),
    "NAdam": (optim.NAdam, [{"lr": 0.02, "weight_decay": 0.01}]),
    "RAdam": (optim.RAdam, [{"lr": 0.02}]),
    "RMSprop": (optim.RMSprop, [{"lr": 0.01, "centered": True, "momentum": 0.5}]),
    "Rprop": (optim.Rprop, [{"lr": 0.01}]),
}
FUSED = {"SGD", "Adam", "AdamW", "Adagrad"}
CASES = [
    (name, options, form)
    for name, (_, variants) in OPTIMIZERS.items()
    for options in variants
    for form in ("loop", "foreach", "fused")
    if form != "fused" or name in FUSED
]


@pytest.mark.parametrize("name, options, form", CASES, ids=lambda x: x if isinstance(x, str) else "-".join(x))
def test_optimizer(name: str, options: dict[str, Any], form: str) -> None:
    made = OPTIMIZERS[name][0]
    how = {"foreach": form == "foreach"} if form != "fused" else {"fused": True}
    same_as_cpu(lambda parameters: made(parameters, **options, **how))


def test_default_form_is_foreach() -> None:
    same_as_cpu(lambda parameters: optim.AdamW(parameters, lr=0.02))
    assert lazytpu.metrics()["ops_recorded"] < 5 * 60


def test_optimizers_without_forms() -> None:
    same_as_cpu(lambda parameters: optim.LBFGS(parameters, lr=0.1, max_iter=3), steady=False, closure=True, steps=2)
    same_as_cpu(lambda parameters: optim.Adafactor(parameters, lr=0.02))
    # Muon orthogonalises in bfloat16.
    same_as_cpu(lambda parameters: optim.Muon([p for p in parameters if p.dim() == 2], lr=0.02), rtol=3e-2)
    same_as_cpu(lambda parameters: optim.ASGD(parameters, lr=0.05, t0=1.0), steady=False)


def test_capturable_and_tensor_rates() -> None:
    same_as_cpu(lambda parameters: optim.AdamW(parameters, lr=torch.tensor(0.02), foreach=False))
    same_as_cpu(lambda parameters: optim.AdamW(parameters, lr=torch.tensor(0.02), fused=True))
    same_as_cpu(lambda parameters: optim.SGD(parameters, lr=torch.tensor(0.1), momentum=0.9, fused=True))
    same_as_cpu(lambda parameters: optim.Adagrad(parameters, lr=torch.tensor(0.1), fused=True))


@pytest.mark.parametrize("name", sorted(FUSED))
def test_fused_unscales_and_skips(name: str) -> None:
    """Half parameters, a scale, and a step that must not happen."""
    results = []
    for device in ("cpu", "tpu"):
        parameters = [randn(3, 2, seed=s, dtype=d).to(device) for s, d in ((1, torch.float32), (2, torch.float64))]
        optimizer = OPTIMIZERS[name][0](parameters, lr=0.1, fused=True)
        kept = []
        for step, found in enumerate((0.0, 1.0, 0.0)):
            for i, parameter in enumerate(parameters):
                parameter.grad = randn(3, 2, seed=10 * step + i, dtype=parameter.dtype).to(device)
            optimizer.grad_scale = torch.tensor(4.0, device=device)
            optimizer.found_inf = torch.tensor(found, device=device)
            optimizer.step()
            kept.append([t.clone() for p in parameters for t in (p, p.grad)])
        results.append(kept)
    assert_same(*results)


@pytest.mark.parametrize("form", ["foreach", "fused"])
def test_loss_scaler(form: str) -> None:
    logs = []
    for device in ("cpu", "tpu"):
        model = mlp().to(device)
        optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.5, **{form: True})
        scaler = torch.amp.GradScaler(device, init_scale=256.0, growth_interval=2)
        log: list[Any] = []
        for step in range(5):
            optimizer.zero_grad()
            loss = model(randn(8, 4, seed=step).to(device)).pow(2).mean()
            scaler.scale(loss * (float("inf") if step == 1 else 1.0)).backward()
            if step % 2 == 0:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
            log.append([torch.tensor(scaler.get_scale()), *(p.detach().cpu().clone() for p in model.parameters())])
        logs.append(log)
    assert_same(*logs)


def test_clipping() -> None:
    results = []
    for device in ("cpu", "tpu"):
        found: list[Any] = []
        for norm, foreach in itertools.product((2.0, 1.0, float("inf"), 0.5), (None, False)):
            model = mlp().to(device)
            model(randn(8, 4).to(device)).pow(2).sum().backward()
            total = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.3, norm, foreach=foreach)
            found.append([total, *(p.grad for p in model.parameters())])
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)
        results.append([found, [p.grad for p in model.parameters()]])
    assert_same(*results)


# List ops


def _list_ops() -> list[Any]:
    names = [n[6:] for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::_foreach_") and not n.endswith("out")]
    pairs = [n.partition(".") for n in sorted(names) if n != "_foreach_mm"]
    return [getattr(getattr(torch.ops.aten, name), overload or "default") for name, _, overload in pairs]


def _arguments(op: Any, dtype: torch.dtype) -> list[Any] | None:
    """Something to call a list op with; None for those whose tensors would have to fit in another way."""
    real = dtype.is_floating_point
    found: list[Any] = []
    lists = 0
    for argument in op._schema.arguments:
        kind = str(argument.type)
        if kind == "List[Tensor]":
            shapes = ((3, 4), (5,), (1,))
            found.append([randn(*s, seed=10 * lists + i).abs().add(0.3).to(dtype) for i, s in enumerate(shapes)])
            found[-1][2] = found[-1][2].squeeze(0)
            lists += 1
        elif argument.name == "alpha" or argument.name == "ord":
            found.append(2)
        elif kind == "number":
            found.append(1.5 if real else 2)
        elif kind == "List[number]":
            found.append([1.5, 2, 0.5] if real else [1, 2, 3])
        elif kind == "Tensor" and argument.name != "scalars":
            found.append(torch.tensor(1.5).to(dtype))
        elif argument.has_default_value():
            found.append(argument.default_value)
        else:
            return None
    return found


def _call(op: Any, arguments: list[Any], device: str) -> list[torch.Tensor]:
    def moved(x: Any) -> Any:
        if isinstance(x, list):
            return [moved(item) for item in x]
        return x.detach().clone().to(device) if isinstance(x, torch.Tensor) else x

    on_device = [moved(x) for x in arguments]
    given = list(zip(op._schema.arguments, on_device))
    result = op(*(x for a, x in given if not a.kwarg_only), **{a.name: x for a, x in given if a.kwarg_only})
    return list(on_device[0] if result is None else result)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64], ids=str)
def test_list_ops(dtype: torch.dtype) -> None:
    """Every list op there is, functional and in place, against CPU."""
    expected, actual = [], []
    for op in _list_ops():
        arguments = _arguments(op, dtype)
        if arguments is None:
            continue
        try:
            on_cpu = _call(op, copy.deepcopy(arguments), "cpu")
        except RuntimeError:
            continue
        expected.append(on_cpu)
        actual.append(_call(op, arguments, "tpu"))
    before = lazytpu.metrics()["cpu_fallbacks"]
    assert len(expected) > 80
    assert_same(expected, actual)
    assert lazytpu.metrics()["cpu_fallbacks"] == before == 0


def test_list_ops_promote_and_refuse() -> None:
    def promoted(device: str) -> list[Any]:
        ints, floats = integers(1, 9, 4).to(device), randn(4).to(device)
        halves, wide = randn(2, 3, dtype=torch.bfloat16).to(device), randn(3, dtype=torch.float64).to(device)
        lists = [ints, floats, halves], [floats, ints, wide]
        results = [
            torch._foreach_add(*lists),
            torch._foreach_mul(lists[0], [2, 1.5, 3]),
            torch._foreach_div(lists[0], 2),
            torch._foreach_sqrt([ints, halves]),
            torch._foreach_add(lists[0], lists[1], alpha=2),
            torch._foreach_norm([floats, halves], float("inf")),
        ]
        torch._foreach_mul_([floats, halves], torch.tensor(0.5, device=device))
        torch._foreach_add_([floats, halves], torch.tensor(2.0), alpha=3)
        return [results, floats, halves]

    assert_same(promoted("cpu"), promoted("tpu"))
    with pytest.raises(RuntimeError, match="not possible"):
        torch._foreach_add_([integers(0, 3, 2).to("tpu")], 1.5)


def test_list_ops_on_shared_memory() -> None:
    """Turns that see each other's writes are taken one after the other."""

    def run(device: str) -> list[torch.Tensor]:
        x, y = randn(4).to(device), randn(4, seed=1).to(device)
        flat = randn(8, seed=2).to(device)
        torch._foreach_add_([x, x], 1)
        torch._foreach_add_([x, y], [y, x])
        torch._foreach_mul_([flat[:4], flat[2:6]], 2)
        torch._foreach_copy_([flat[:4], y], [x, torch.ones(4)])
        torch._foreach_zero_([x])
        return [x, y, flat]

    assert_same(run("cpu"), run("tpu"))
