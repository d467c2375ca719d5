"""Console entry, `unityc` or `python -m unity_dsl`: an interruption during imports shows no traceback."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, and exit with its code."""
    try:
        from .cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("unityc: interrupted\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
