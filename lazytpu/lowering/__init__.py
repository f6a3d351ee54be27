"""Lowering: rules from ATen ops to ``jax.lax``, and traces to StableHLO modules.

``load_rules()`` imports every family, which fills ``registry.RULES``.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules


def load_rules() -> None:
    """Import the rule families: the modules of ``lazytpu.lowering.rules``."""
    from lazytpu.lowering import rules

    for module in iter_modules(rules.__path__):
        import_module(f"{rules.__name__}.{module.name}")
