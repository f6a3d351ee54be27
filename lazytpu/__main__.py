"""``python -m lazytpu``: commands about lazytpu's own files."""

from __future__ import annotations

import argparse
import sys

from lazytpu.cache import cli


def main() -> int:
    """Run the command of the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m lazytpu", description="Commands about lazytpu's own files.")
    cli.add_to(parser.add_subparsers(required=True, metavar="command"))
    options = parser.parse_args()
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
