"""Train a small GPT on the characters of Python's standard library, then sample from it.

An ordinary PyTorch script: the only thing that says where it runs is the device string.

    python examples/gpt.py                     # train, sample, save out/gpt.pt
    python examples/gpt.py --resume            # go on from the checkpoint, exactly
    python examples/gpt.py --device cpu        # the same on the CPU
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sysconfig
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from tqdm import tqdm

import lazytpu


def standard_library(limit: int) -> str:
    """The source text of the standard library's top-level modules, ``limit`` characters of it."""
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    texts, total = [], 0
    for file in sorted(folder.glob("*.py")):
        text = file.read_text(encoding="utf-8", errors="ignore")
        texts.append("".join(c for c in text if c == "\n" or 32 <= ord(c) < 127))
        total += len(texts[-1])
        if total > limit:
            break
    return "\n".join(texts)[:limit]


class Block(nn.Module):
    """Pre-norm transformer block: causal self-attention and a feed-forward network."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        x = x + F.dropout(self.out(y.transpose(1, 2).reshape(batch, length, width)), self.dropout, self.training)
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """A decoder with learned positions and tied token embeddings."""

    def __init__(self, vocabulary: int, context: int, layers: int, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.context = context
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.apply(self._initialise)
        self.head.weight = self.tokens.weight

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.norm(self.blocks(self.tokens(ids) + self.positions(positions))))


@torch.no_grad()
def sample(model: GPT, context: torch.Tensor, count: int, temperature: float) -> list[int]:
    """``count`` token ids that follow ``context`` (1 × model.context), drawn one at a time."""
    model.eval()
    drawn = []
    for _ in range(count):
        logits = model(context)[:, -1] / temperature
        following = torch.multinomial(logits.softmax(-1), 1)
        context = torch.cat([context[:, 1:], following], dim=1)
        drawn.append(following.item())
    model.train()
    return drawn


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="tpu")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--characters", type=int, default=4_000_000, help="of source text to train on")
    parser.add_argument("--sample", type=int, default=300, help="characters to sample at the end")
    parser.add_argument("--checkpoint", default="out/gpt.pt")
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--stop-at", type=int, default=None, help="stop after this step, as an interrupted run would")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    args = parse()
    device = torch.device(args.device)
    torch.manual_seed(args.seed)

    text = standard_library(args.characters)
    alphabet = sorted(set(text))
    number = {c: i for i, c in enumerate(alphabet)}
    data = torch.tensor([number[c] for c in text])
    batches = torch.Generator().manual_seed(args.seed)

    model = GPT(len(alphabet), args.context, args.layers, args.width, args.heads, args.dropout).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate, weight_decay=0.1, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    generator = torch.get_device_module(device) if device.type != "cpu" else torch.random
    step, losses = 0, []
    if args.resume:
        saved = torch.load(args.checkpoint, map_location="cpu")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        schedule.load_state_dict(saved["schedule"])
        schedule.T_max = args.steps
        batches.set_state(saved["batches"])
        generator.set_rng_state(saved["random"])
        step, losses = saved["step"], saved["losses"]

    def save() -> None:
        os.makedirs(os.path.dirname(args.checkpoint) or ".", exist_ok=True)
        state = {
            "model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(),
            "batches": batches.get_state(), "random": generator.get_rng_state(), "step": step, "losses": losses,
        }  # fmt: skip
        torch.save(state, args.checkpoint + ".new")
        os.replace(args.checkpoint + ".new", args.checkpoint)

    parameters = sum(p.numel() for p in model.parameters())
    print(f"{len(text):,} characters, {len(alphabet)} kinds; {parameters:,} parameters on {device}")
    last = min(args.steps, args.stop_at or args.steps)
    bar = tqdm(range(step, last), initial=step, total=args.steps, unit="step")
    started, tokens = time.perf_counter(), 0
    for step in bar:
        starts = torch.randint(len(data) - args.context - 1, (args.batch,), generator=batches)
        windows = torch.stack([data[s : s + args.context + 1] for s in starts]).to(device)
        logits = model(windows[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        schedule.step()
        step += 1
        tokens += args.batch * args.context
        if step % 10 == 0 or step == last:
            losses.append((step, loss.item()))
            speed = tokens / (time.perf_counter() - started)
            bar.set_postfix(loss=f"{losses[-1][1]:.3f}", tokens=f"{speed:,.0f}/s", compiles=lazytpu.metrics()["compiles"])
        if step % args.save_every == 0 or step == last:
            save()
    if losses:
        shown = losses[:: max(1, len(losses) // 10)]
        print("loss: " + "  ".join(f"{s}: {x:.3f}" for s, x in shown), f" last: {losses[-1][1]:.4f}")
    print(f"programs compiled while training: {lazytpu.metrics()['compiles']}")
    if step >= args.steps and args.sample:
        context = data[: args.context].unsqueeze(0).to(device)
        print("-" * 40 + "\n" + "".join(alphabet[i] for i in sample(model, context, args.sample, 0.8)))


if __name__ == "__main__":
    main()
