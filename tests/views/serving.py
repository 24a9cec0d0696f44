"""A keeper's views over HTTP, on a free port of this machine, as the process that runs their app serves them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from headwater.http import Address, Settings, served
from headwater.views import ViewKeeper

APP = "shop"


# Any: stands in for a runner, as far as the services of views ask one.
def runner_of(keeper: ViewKeeper) -> Any:
    return SimpleNamespace(app=SimpleNamespace(name=APP, queries=[]), keeper=keeper, statuses=list)


@contextlib.contextmanager
def serving(keeper: ViewKeeper, *, settings: Settings | None = None) -> Iterator[str]:
    """Serve the views while the block runs; gives the address."""
    # SQL in this process: what runs it in others is tested with the services.
    with served(keeper.log, Address(port=0), settings=settings, runner=runner_of(keeper), confined=False) as address:
        yield address
