"""What the check of a whole run says."""

from __future__ import annotations

import json
from typing import Any

from company.check import EXPECTED, LATE


def all_hold(output: str) -> bool:
    """Whether each output that the check must look at is there, is not empty, and equals its recomputation."""
    outcomes: list[dict[str, Any]] = json.loads(output)  # Any: JSON
    assert len(outcomes) == len(EXPECTED) + len(LATE)
    return all(one["holds"] and one["expected"] == one["got"] > 0 for one in outcomes)
