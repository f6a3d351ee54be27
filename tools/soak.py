"""``python -m tools.soak``: train the example GPT for many steps and watch memory, compiles and the loss.

Prints one line every 200 steps; exits with an error where memory grows, a program is compiled after
the third step, or the loss stops being finite.
"""

from __future__ import annotations

import argparse
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

import lazytpu
from examples.gpt import GPT


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = GPT(64, 32, 2, 64, 4, 0.1).to("tpu")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    rows = []
    for step in range(1, args.steps + 1):
        ids = torch.randint(64, (8, 2), generator=torch.Generator().manual_seed(step)).repeat(1, 17)[:, :33].to("tpu")
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 200 == 0 or step == 3:
            value = loss.item()
            rows.append((step, resident(), torch.tpu.memory_allocated(), lazytpu.metrics()["compiles"], value))
            print(f"step {step}: {rows[-1][1] / 2**20:.1f} MiB resident, {rows[-1][2]:,} bytes on the device, "
                  f"{rows[-1][3]:.0f} programs compiled, loss {value:.4f}", flush=True)  # fmt: skip
            if not math.isfinite(value):
                raise SystemExit("the loss is not finite")
    early, late = rows[1], rows[-1]
    if late[2] != early[2] or late[3] != rows[0][3] or late[1] > 1.05 * early[1]:
        raise SystemExit("memory or the number of programs grew")


if __name__ == "__main__":
    main()
