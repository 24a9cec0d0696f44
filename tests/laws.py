"""How many examples a law is tried with: Hypothesis's profiles, and the one decorator that a law may carry.

A law is a test under `@given`. It says nothing about how many examples it wants: the tier of the run does.

    quick     about 15 examples, the same on every run       make test
    full      100 examples, the same on every run            make slow
    explore   2,000 random examples (EXAMPLES=…), and those that failed before, from a database    make night

An example that takes long, because it compiles, writes files or asks a server, says so with `@costly`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from hypothesis import HealthCheck, settings

Law = TypeVar("Law", bound=Callable[..., object])

#: Where random series begin. `make night` chooses one and prints it; all other runs have the same.
SEED = int(os.environ.get("SEED", "7"))
EXAMPLES = {"quick": 15, "full": 100, "explore": int(os.environ.get("EXAMPLES", "2000"))}

# How long an example takes says nothing about what is tested, and a machine may be slow.
_COMMON = settings(deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))

for name, count in EXAMPLES.items():
    fixed = {"derandomize": True, "database": None} if name != "explore" else {}
    settings.register_profile(name, _COMMON, max_examples=count, **fixed)


def costly(times: int, **options: object) -> Callable[[Law], Law]:
    """Try a law with fewer examples, because each costs so many times what a usual one does (some milliseconds).

    Every profile still tries at least two: the first example that Hypothesis makes is mostly nothing at all. `options`
    are further settings of Hypothesis, except for the number of examples.
    """

    def limited(law: Law) -> Law:
        # The profile is loaded before any test module is.
        profile = settings.default
        assert profile is not None
        given = max(2, profile.max_examples // times)
        decorate: Callable[[Law], Law] = settings(max_examples=given, **options)  # type: ignore[arg-type]
        return decorate(law)

    return limited
