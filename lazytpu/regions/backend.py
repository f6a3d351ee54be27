"""The backend ``"tpu"`` of ``torch.compile``, which tensors on ``tpu`` also get where no backend is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def backend(graph: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """Compile what Dynamo captured: forward and backward each become a region of the trace around them.

    Nothing is compiled here: XLA sees the region together with what surrounds it when the trace is cut.
    ``options`` (``mode`` and the like) have no meaning on ``tpu``.
    """
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(fw_compiler=_region, bw_compiler=_region, inference_compiler=_region)(graph, inputs)


def _region(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    from functorch.compile import make_boxed_func

    from lazytpu.regions.region import Region

    return make_boxed_func(Region(graph))


def apply() -> None:
    """Send graphs with tensors on ``tpu`` to this backend where inductor, the default, would get them."""
    wrapper: Any = torch._TorchCompileInductorWrapper
    inductor = wrapper.__call__

    def call(self: Any, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        return backend(graph, inputs) if _on_tpu(graph, inputs) else inductor(self, graph, inputs)

    wrapper.__call__ = call


def _on_tpu(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    shown = (node.meta.get("example_value") for node in graph.graph.nodes)
    return any(isinstance(x, torch.Tensor) and x.device.type == "tpu" for x in (*inputs, *shown))
