"""Serves views over HTTP on a free port, as the process of their app does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from headwater.http import Address, Settings, served
from headwater.views import ViewKeeper

APP = "shop"


# Any: a stand-in for a runner, with the attributes that the services of views use.
def runner_of(keeper: ViewKeeper) -> Any:
    return SimpleNamespace(app=SimpleNamespace(name=APP, queries=[]), keeper=keeper, statuses=list)


@contextlib.contextmanager
def serve_views(keeper: ViewKeeper, *, settings: Settings | None = None) -> Iterator[str]:
    """Serve the views while the block runs; yield the address."""
    # SQL in this process: running it in others is tested with the services.
    with served(keeper.log, Address(port=0), settings=settings, runner=runner_of(keeper), confined=False) as address:
        yield address
