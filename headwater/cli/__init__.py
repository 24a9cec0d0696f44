"""The `headwater` command: one file per noun, and one set of rules for all of them."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from typing import Any, NoReturn


def main() -> NoReturn:
    """Run the command line of this process, and end the process with the command's exit code."""
    if sys.argv[1:] == ["--version"]:
        sys.argv[1] = "version"
    if "--no-color" in sys.argv:
        # The help pages are drawn by a library that knows no flag of ours, but this one.
        os.environ["NO_COLOR"] = "1"
    leave_pandas_out()
    warnings.showwarning = _tell
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # so that a group is left, and what was printed is committed
    from headwater.cli.app import run

    sys.exit(run(sys.argv[1:]))


# Any: the signature is that of `warnings.showwarning`; where a warning was raised is of no use to a reader.
def _tell(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"warning: {message}", file=sys.stderr)


class _NoPandas:
    """A finder that finds no pandas, and has no say about anything else."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("no command needs pandas", name=name)


def leave_pandas_out() -> None:
    """Keep Arrow from importing pandas into this process, as it does to see whether a value is a Series.

    Most commands are given none, and the import takes longer than everything else together.
    """
    sys.meta_path.insert(0, _NoPandas)


def let_pandas_in() -> None:
    """For a command that runs what a user has written, or Spark, which needs it."""
    if _NoPandas in sys.meta_path:
        sys.meta_path.remove(_NoPandas)


__all__ = ["main"]
