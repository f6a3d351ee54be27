"""Row 27: parameters, ties, optimizers and gradients across moves and conversions of modules."""

from __future__ import annotations

import copy
import warnings
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import nn


def tied() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    return model


def test_parameters_stay_the_objects_they_are() -> None:
    model = tied()
    weight, bias = model[0].weight, model[1].bias
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    model(torch.ones(1, 3)).sum().backward()
    grad = weight.grad
    values = weight.detach().clone()
    steps: list[Callable[[], nn.Module]] = [
        lambda: model.to("tpu"), model.half, model.bfloat16, model.float, model.cpu, model.tpu, model.double,
        lambda: model.to("cpu", torch.float32), lambda: model.to(torch.ones(1, device="tpu")),
    ]  # fmt: skip
    for move in steps:
        assert move() is model
        assert model[0].weight is model[1].weight is weight and model[1].bias is bias
        assert type(weight) is nn.Parameter and weight.is_leaf and weight.grad is grad
        assert weight.device == grad.device and weight.dtype is grad.dtype
    torch.testing.assert_close(weight.detach().cpu(), values, rtol=1e-2, atol=1e-2)
    assert weight.is_tpu and not torch.__future__.get_swap_module_params_on_conversion()
    before = weight.tolist()
    optimizer.step()
    assert weight.tolist() != before


def test_weak_references_and_live_graphs_do_not_stop_a_move() -> None:
    model = tied()
    reference = weakref.ref(model[0].weight)
    model.to("tpu")
    assert reference() is model[0].weight is model[1].weight
    model = tied()
    kept = model(torch.ones(1, 3))
    with pytest.warns(UserWarning, match="make the optimizer after the move"):
        model.to("tpu")
    assert model[0].weight is model[1].weight and all(p.is_tpu for p in model.parameters())
    model(torch.ones(1, 3, device="tpu")).sum().backward()
    assert model[0].weight.grad.is_tpu
    kept.sum().backward()


def test_buffers_and_recurrent_weights() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            buffer = torch.ones(2)
            self.register_buffer("a", buffer)
            self.register_buffer("b", buffer)
            self.register_buffer("c", None)

    module = Shared().to("tpu")
    assert module.a is module.b and module.a.is_tpu and module.cpu().a is module.b
    lstm = nn.LSTM(2, 3, 2).to("tpu")
    assert all(a is b for a, b in zip(lstm._flat_weights, lstm.parameters()))
    lstm.cpu()
    assert all(a is b and not a.is_tpu for a, b in zip(lstm._flat_weights, lstm.parameters()))
    norm = nn.BatchNorm1d(3).to("tpu")
    assert norm.running_mean.is_tpu and norm.num_batches_tracked.dtype is torch.int64


def test_making_on_the_device() -> None:
    with torch.device("meta"):
        meta = tied()
    meta.to_empty(device="tpu")
    assert meta[0].weight is meta[1].weight and meta[0].weight.is_tpu and type(meta[0].weight) is nn.Parameter
    nn.init.constant_(meta[0].weight, 0.5)
    assert meta[1].weight.tolist() == [[0.5] * 3] * 3
    assert nn.utils.skip_init(nn.Linear, 2, 2, device="tpu").weight.is_tpu
    assert nn.Linear(2, 2, device="tpu", dtype=torch.bfloat16).weight.dtype is torch.bfloat16
    with torch.device("tpu"):
        assert nn.Linear(2, 2).weight.is_tpu


def test_state_dicts() -> None:
    source, target = nn.Linear(2, 2).to("tpu"), nn.Linear(2, 2)
    weight = target.weight
    target.load_state_dict(source.state_dict())
    assert target.weight is weight and not weight.is_tpu and torch.equal(weight, source.weight.cpu())
    target.load_state_dict(source.state_dict(), assign=True)
    assert target.weight.is_tpu and type(target.weight) is nn.Parameter
    source.load_state_dict(nn.Linear(2, 2).state_dict(), assign=True)
    assert not source.weight.is_tpu
    target.load_state_dict(source.state_dict())
    assert target.weight.is_tpu and torch.equal(target.weight.cpu(), source.weight)


def test_copies_of_modules() -> None:
    model = tied().to("tpu")
    model(torch.ones(1, 3, device="tpu")).sum().backward()
    twin = copy.deepcopy(model)
    assert twin[0].weight is twin[1].weight and twin[0].weight is not model[0].weight
    assert twin[0].weight.grad is None, "nn.Parameter copies no gradient"
    before = model[0].weight.tolist()
    with torch.no_grad():
        twin[0].weight.fill_(7)
    assert model[0].weight.tolist() == before
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)).to("tpu")
    assert copy.deepcopy(normed)(torch.ones(1, 2, device="tpu")).is_tpu


def test_other_modules_take_pytorchs_road() -> None:
    model = tied()
    weight = model[0].weight
    kept = model(torch.ones(1, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.double()
        model.to("meta")
    assert kept.device.type == "cpu" and model[0].weight is not weight and model[0].weight.is_meta
    assert model.to_empty(device="cpu")[0].weight.device.type == "cpu"
