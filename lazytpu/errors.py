"""The errors lazytpu raises of its own."""

from __future__ import annotations

from lazytpu.ir import Node


class DeviceError(RuntimeError):
    """An op failed while it was compiled or run, after the call that recorded it had returned."""

    @staticmethod
    def of(node: Node, reason: BaseException) -> DeviceError:
        """The error of one recorded op, naming the op, its types and the user's line."""
        signature = node.signature
        where = f"{node.source}" if node.source else "an unknown line"
        inputs = ", ".join(map(repr, signature.inputs))
        return DeviceError(
            f"{signature.op}({inputs}) recorded at {where} failed on the device: {reason}\n"
            "Values that do not depend on it are intact. Run under lazytpu.eager() (or LAZYTPU_EAGER=1) to stop at the line."
        )
