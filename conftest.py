"""What holds for all tests, those beside the code and in examples too: `tests/tiers.py` says when each runs."""

from __future__ import annotations

import sys
from pathlib import Path

#: The company of the demo is imported as `headwater demo` imports it.
sys.path.insert(0, str(Path(__file__).parent / "examples"))

pytest_plugins = ["tests.tiers", "tests.session"]
