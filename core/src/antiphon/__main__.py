"""``antiphon`` and ``python -m antiphon``: the command line, told to stop while it is still loading too."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and end the process with its exit code."""
    try:
        from antiphon.cli import main as command_line

        command_line()
    except (
        KeyboardInterrupt
    ):  # while modules load; `antiphon.cli.run` answers those that come later
        if sys.stderr is not None:  # it is where somebody closed it: antiphon ... 2>&-
            sys.stderr.write("antiphon: interrupted.\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
