"""Running Python programs in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path


def python(program: str, directory: Path | None = None, **environment: str | None) -> str:
    """What ``program`` prints, standard error included; asserts that it ends well.

    Args:
        program: indented as you like.
        directory: where to run it; also what it can import.
        environment: variables to set, or to unset where None.
    """
    variables = {**os.environ, "LAZYTPU_PLATFORM": "cpu", **environment}
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=directory,
        env={k: v for k, v in variables.items() if v is not None},
        capture_output=True,
        text=True,
        timeout=120,
    )
    output = found.stdout + found.stderr
    assert found.returncode == 0, f"exit status {found.returncode}:\n{output}"
    return output
