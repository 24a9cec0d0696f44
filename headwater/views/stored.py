"""Views that nobody keeps at the moment: what their store held when their app last ran, read and never changed."""

from __future__ import annotations

from pathlib import Path

from headwater.errors import ViewNotFound
from headwater.log import EmbeddedLog
from headwater.views.duck import DuckStore
from headwater.views.keeper import ViewKeeper
from headwater.views.view import View


def stored_views(*, log: EmbeddedLog, path: Path | str) -> ViewKeeper:
    """All views of a store, as they were left. Close its `store` when done; until then nobody can run the app."""
    return ViewKeeper(log, DuckStore(path, read_only=True), read_only=True)


def stored_view(name: str, *, log: EmbeddedLog, path: Path | str) -> View:
    """One view of a store, as it was left."""
    if not Path(path).exists():
        raise ViewNotFound(view=name)
    return stored_views(log=log, path=path).view(name)
