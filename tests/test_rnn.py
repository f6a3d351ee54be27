"""Recurrent layers and cells against CPU, and what whole layers cost to record."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import assert_same, check, randn
from torch import nn

import lazytpu


def on_device(module: nn.Module, parameters: list[Any], *args: Any) -> Any:
    """Call ``module`` with these parameters in place of its own."""
    moved = copy.deepcopy(module).to(parameters[0].device)
    names = [name for name, _ in module.named_parameters()]
    return torch.func.functional_call(moved, dict(zip(names, parameters)), args)


def check_module(module: nn.Module, *args: Any, **options: Any) -> None:
    check(lambda parameters, *args: on_device(module, parameters, *args), list(module.parameters()), *args, **options)


MODULES: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: nn.LSTM(3, 4),
    "deep lstm": lambda: nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True),
    "projected lstm": lambda: nn.LSTM(3, 4, 2, proj_size=2, bias=False),
    "deep gru": lambda: nn.GRU(3, 4, 2, bidirectional=True),
    "gru": lambda: nn.GRU(3, 4, bias=False),
    "rnn": lambda: nn.RNN(3, 4),
    "relu rnn": lambda: nn.RNN(3, 4, nonlinearity="relu", bidirectional=True),
}


@pytest.mark.parametrize("name", MODULES)
def test_layers(name: str) -> None:
    torch.manual_seed(0)
    check_module(MODULES[name](), randn(6, 2, 3, grad=True))


def test_given_states_unbatched_and_halves() -> None:
    torch.manual_seed(0)
    check_module(nn.LSTM(3, 4), randn(6, 2, 3), (randn(1, 2, 4, grad=True), randn(1, 2, 4, seed=1, grad=True)))
    check_module(nn.GRU(3, 4), randn(6, 3, grad=True), randn(1, 4, grad=True))
    check_module(nn.LSTM(3, 4).double(), randn(6, 2, 3, dtype=torch.float64, grad=True))
    check_module(nn.GRU(3, 4).bfloat16(), randn(4, 2, 3, dtype=torch.bfloat16, grad=True), rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells(cell: Any) -> None:
    torch.manual_seed(0)
    check_module(cell(3, 4), randn(2, 3, grad=True))
    check_module(cell(3, 4, bias=False), randn(3, grad=True))

    def second(parameters: Any, x: Any) -> Any:
        out = on_device(module, parameters, x)
        out = out[0] + out[1] if isinstance(out, tuple) else out
        return [g.pow(2) for g in torch.autograd.grad(out.pow(2).sum(), [x, *parameters], create_graph=True)]

    module = cell(3, 4)
    check(second, list(module.parameters()), randn(2, 3, grad=True))


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_double_backward(name: str) -> None:
    torch.manual_seed(0)
    module = MODULES[name]()

    def second(parameters: Any, x: Any) -> Any:
        out = on_device(module, parameters, x)[0]
        return [g.pow(2) for g in torch.autograd.grad(out.pow(2).sum(), [x, *parameters], create_graph=True)]

    check(second, list(module.parameters()), randn(3, 2, 3, grad=True))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_packed_sequences(kind: Any) -> None:
    torch.manual_seed(0)
    module = nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2) if kind is nn.LSTM else nn.GRU(3, 4, bidirectional=True)

    def packed(parameters: Any, x: Any) -> Any:
        sequences = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 6, 1]), enforce_sorted=False)
        out, last = on_device(module, parameters, sequences)
        return nn.utils.rnn.pad_packed_sequence(out)[0], last

    check(packed, list(module.parameters()), randn(6, 3, 3, grad=True))


def test_long_sequences_cost_as_many_ops_as_short_ones() -> None:
    module = nn.LSTM(3, 4).to("tpu")
    recorded = []
    for length in (5, 200):
        lazytpu.sync()
        before = lazytpu.metrics()["ops_recorded"]
        module(randn(length, 2, 3).to("tpu"))[0].sum().backward()
        recorded.append(lazytpu.metrics()["ops_recorded"] - before)
        module.zero_grad()
    assert recorded[0] == recorded[1] < 40


def test_dropout_between_layers() -> None:
    torch.manual_seed(0)
    module, x = nn.GRU(3, 4, 2, dropout=0.5).to("tpu"), randn(6, 2, 3).to("tpu")
    once, twice = module(x)[0].detach().cpu(), module(x)[0].detach().cpu()
    assert not torch.equal(once, twice)
    module.eval()
    with torch.inference_mode():
        assert_same(copy.deepcopy(module).cpu()(x.cpu())[0], module(x)[0].cpu())


def test_errors() -> None:
    module = nn.LSTM(3, 4).to("tpu")
    with pytest.raises(RuntimeError, match="sequence length"):
        module(torch.zeros(0, 2, 3, device="tpu"))
    with pytest.raises((RuntimeError, ValueError)):
        module(torch.zeros(5, 2, 3, device="tpu", dtype=torch.float64))
