"""The `headwater` command: one file per noun, and one set of rules for all of them."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line of this process, and end the process with the command's exit code."""
    if "--no-color" in sys.argv:
        # The help pages are drawn by a library that knows no flag of ours, but this one.
        os.environ["NO_COLOR"] = "1"
    from headwater.cli.app import run

    sys.exit(run(sys.argv[1:]))


__all__ = ["main"]
