"""``python -m tools.bench.setup_xla``: an environment for PyTorch/XLA 2.9, which needs a PyTorch of its own."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import venv

FOLDER = pathlib.Path(__file__).parents[2] / "build" / "xla-venv"
PYTHON = FOLDER / "bin" / "python"
PACKAGES = ("torch==2.9.1", "torch_xla==2.9.0", "numpy", "tqdm")


def main() -> None:
    venv.create(FOLDER, with_pip=True)
    # PyPI's torch brings CUDA along, several gigabytes of it.
    subprocess.run([str(PYTHON), "-m", "pip", "install", *PACKAGES], check=True)
    print(f"PyTorch/XLA is in {FOLDER}", file=sys.stderr)


if __name__ == "__main__":
    main()
