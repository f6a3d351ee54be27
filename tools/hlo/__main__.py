"""``python -m tools.hlo``: a recorded GPT step and its twin in JAX, compiled for one chip, side by side.

The twin returns what PyTorch keeps alive: parameters, moments, gradients and the loss. Its float32
products are exact, as lazytpu's are on every platform, unless ``--precision default`` asks for the TPU's
own single pass of bfloat16.
"""

from __future__ import annotations

import argparse
from collections import Counter

from tools.hlo.targets import CHIPS, Compiled, compiler, quiet


def table(target: str, ours: Compiled, theirs: Compiled) -> str:
    """Markdown: the figures of both and their ratio."""
    lines = [f"| {target} | lazytpu | jax.jit by hand | ratio |", "|---|---|---|---|"]
    for name, value in ours.figures.items():
        other = theirs.figures[name]
        ratio = f"{value / other:.3f}" if other else ""
        lines.append(f"| {name} | {value:,.0f} | {other:,.0f} | {ratio} |")
    return "\n".join(lines)


def _listed(counts: Counter[str], limit: int) -> str:
    return ", ".join(f"{op} {count}" for op, count in counts.most_common(limit)) or "none"


def differences(ours: Compiled, theirs: Compiled, limit: int = 12) -> str:
    """The HLO ops that one program has more of than the other, most first."""
    more = f"HLO ops lazytpu has more of: {_listed(ours.ops - theirs.ops, limit)}"
    return f"{more}\nHLO ops jax.jit has more of: {_listed(theirs.ops - ours.ops, limit)}"


def main() -> None:
    targets = ("cpu", *CHIPS)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", default=["v5e", "cpu"], help=f"of {', '.join(targets)}")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--precision", default="highest", choices=["highest", "high", "default"], help="of the twin's products")
    args = parser.parse_args()
    quiet()
    import lazytpu  # noqa: F401
    from tools.hlo.steps import by_hand, recorded

    step = recorded(f"gpt{args.layers}")
    for target in args.targets:
        platform = "cpu" if target == "cpu" else "tpu"
        compile = compiler(target)
        ours = compile(step.text(platform))
        theirs = compile(by_hand(args.layers, platform, args.precision))
        print(f"{table(target, ours, theirs)}\n\n{differences(ours, theirs)}\n", flush=True)


if __name__ == "__main__":
    main()
