"""Serves views over HTTP on a free port, as the process of their app does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from headwater.http import Address, served
from headwater.views import ViewKeeper


@contextlib.contextmanager
def served_views(keeper: ViewKeeper) -> Iterator[str]:
    """Serve the views while the block runs; yield the address."""
    # Any: a stand-in for a runner, with the attributes that the services of views use.
    runner: Any = SimpleNamespace(app=SimpleNamespace(name="bench", queries=[]), keeper=keeper, statuses=list)
    with served(keeper.log, Address(port=0), runner=runner) as address:
        yield address
