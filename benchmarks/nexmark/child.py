"""The loop of an engine's process: a request as a line of JSON, its answer as a line of JSON.

It runs in the virtual environments of the peers, too, and so imports nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Any: requests and answers are JSON.
Request = Mapping[str, Any]


def serve(run: Callable[[Request], Mapping[str, Any]]) -> None:
    """Answer requests until the input ends. What else is printed goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    answers.write(json.dumps({"ready": True}) + "\n")
    for line in sys.stdin:
        try:
            answer: Mapping[str, Any] = run(json.loads(line))
        except Exception as error:  # the parent decides what it means; the other queries go on
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {str(error).strip()[:2_000]}"}
        answers.write(json.dumps(answer) + "\n")


class Changes:
    """What a query gives, one change a line: its operation and its values, with times in milliseconds."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("w", encoding="utf-8")  # noqa: SIM115 - closed by `close`

    # Any: values of rows.
    def add(self, op: str, row: Mapping[str, Any]) -> None:
        self._file.write(json.dumps([op, dict(row)]) + "\n")

    def close(self) -> None:
        self._file.close()
