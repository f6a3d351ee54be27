"""Train a small CNN on scikit-learn's handwritten digits: batch norm, dropout, augmentation, accuracy.

    python examples/digits.py
    python examples/digits.py --device cpu
"""

from __future__ import annotations

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset, random_split
from tqdm import tqdm

import lazytpu


def network(dropout: float) -> nn.Module:
    """1×8×8 images to 10 logits."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Dropout(dropout), nn.Linear(256, 64), nn.ReLU(), nn.Dropout(dropout), nn.Linear(64, 10),
    )  # fmt: skip


def augmented(images: torch.Tensor) -> torch.Tensor:
    """The batch shifted by up to a pixel, each image its own way, with a little noise."""
    padded = F.pad(images, (1, 1, 1, 1))
    shift = torch.randint(0, 3, (2, len(images), 1, 1), device=images.device)
    rows = torch.arange(8, device=images.device).view(1, 8, 1) + shift[0]
    columns = torch.arange(8, device=images.device).view(1, 1, 8) + shift[1]
    which = torch.arange(len(images), device=images.device).view(-1, 1, 1)
    return padded[which, 0, rows, columns].unsqueeze(1) + 0.05 * torch.randn_like(images)


def accuracy(model: nn.Module, loader: DataLoader, device: torch.device) -> float:
    """The share of images whose digit the model names."""
    model.eval()
    right = torch.zeros((), device=device)
    with torch.no_grad():
        for images, digits in loader:
            right += (model(images.to(device)).argmax(1) == digits.to(device)).sum()
    model.train()
    return right.item() / len(loader.dataset)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="tpu")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    device = torch.device(args.device)
    torch.manual_seed(args.seed)

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    whole = TensorDataset(images, torch.tensor(digits.target))
    training, validation = random_split(whole, [0.8, 0.2], generator=torch.Generator().manual_seed(args.seed))
    loader = DataLoader(training, args.batch, shuffle=True, drop_last=True)

    model = network(dropout=0.2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=args.epochs * len(loader))
    bar = tqdm(range(args.epochs), unit="epoch")
    for _ in bar:
        for batch, target in loader:
            loss = F.cross_entropy(model(augmented(batch.to(device))), target.to(device), label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        score = accuracy(model, DataLoader(validation, 256), device)
        bar.set_postfix(loss=f"{loss.item():.3f}", accuracy=f"{score:.3f}", compiles=lazytpu.metrics()["compiles"])
    print(f"validation accuracy {accuracy(model, DataLoader(validation, 256), device):.4f} on {len(validation)} images")


if __name__ == "__main__":
    main()
