"""Programs that once went wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import check, randn
from torch.utils.checkpoint import checkpoint


def _raise(*args: Any) -> Any:
    raise ValueError("from a hook") from KeyError("cause")


def _on_tensor(x: torch.Tensor) -> torch.Tensor:
    x.register_hook(_raise)
    return x * 2


def _on_node(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.grad_fn.register_hook(_raise)  # type: ignore[union-attr]
    return y


def _after_accumulation(x: torch.Tensor) -> torch.Tensor:
    x.register_post_accumulate_grad_hook(_raise)
    return x * 2


def _on_saved(x: torch.Tensor) -> torch.Tensor:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, _raise):
        return x.exp() * x


def _in_reentrant_checkpoint(x: torch.Tensor) -> Any:
    def body(y: torch.Tensor) -> torch.Tensor:
        return _on_node(y) if torch.is_grad_enabled() else y * 2

    return checkpoint(body, x, use_reentrant=True)


@pytest.mark.parametrize("program", [_on_tensor, _on_node, _after_accumulation, _on_saved, _in_reentrant_checkpoint])
def test_a_hook_that_raises_in_a_backward_does_not_end_the_process(program: Callable[[torch.Tensor], torch.Tensor]) -> None:
    loss = program(torch.ones(3, device="tpu", requires_grad=True)).sum()
    with pytest.raises(ValueError, match="from a hook") as caught:
        loss.backward()
    assert isinstance(caught.value.__cause__, KeyError)
    x = torch.ones(3, device="tpu", requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0] * 3


@pytest.mark.parametrize("value", [torch.tensor(7), torch.tensor([7]), torch.tensor(7.5, dtype=torch.float64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_one_element_assigned_through_a_mask_is_cast(value: torch.Tensor, dtype: torch.dtype) -> None:
    def assign(x: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        x[x > 0] = value
        x[:, x[0] < 0] = value
        return x

    check(assign, (randn(3, 4) * 3).to(dtype), value)


def test_several_elements_of_another_dtype_are_refused() -> None:
    x = torch.zeros(2, device="tpu")
    with pytest.raises(RuntimeError, match="source and destination dtypes match"):
        x[x == 0] = torch.tensor([1, 2], device="tpu")
    with pytest.raises(RuntimeError, match="source and destination dtypes match"):
        x[torch.tensor([0], device="tpu")] = torch.tensor(7, device="tpu")
