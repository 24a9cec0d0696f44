"""The views of a keeper over HTTP, as the process that runs their app serves them, on a free port of this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from headwater.http import Address, served
from headwater.views import ViewKeeper


@contextlib.contextmanager
def served_views(keeper: ViewKeeper) -> Iterator[str]:
    """Serve the views while the block runs; gives the address."""
    # Any: stands in for a runner, as far as the services of views ask one.
    runner: Any = SimpleNamespace(app=SimpleNamespace(name="bench", queries=[]), keeper=keeper, statuses=list)
    with served(keeper.log, Address(port=0), runner=runner) as address:
        yield address
