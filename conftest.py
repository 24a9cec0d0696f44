"""What holds for all tests, those beside the code and in examples too: `tests/tiers.py` says when each runs."""

from __future__ import annotations

pytest_plugins = ["tests.tiers", "tests.session"]
