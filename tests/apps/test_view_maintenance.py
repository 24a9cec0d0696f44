"""An interrupted rebuild leaves nothing behind, and the next one starts from the beginning."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater as hw
from headwater.apps.home import Home
from headwater.apps.view_maintenance import kept_views, rebuild
from headwater.faults import install
from headwater.log import open as open_log


class Interrupted(Exception):
    """In place of a kill."""


@pytest.mark.parametrize("point", ["view.committed", "view.before_switch"])
def test_the_next_start_serves_the_rows_it_had(tmp_path: Path, point: str) -> None:
    app = hw.App("shop", log=tmp_path)

    @app.view(key="user")
    def spend(orders: object) -> object:
        return orders

    def hook(reached: str) -> None:
        if reached == point:
            raise Interrupted

    home = Home(app.home)
    home.path.mkdir(parents=True)
    with open_log(tmp_path) as log:
        log.create("spend", {"user": "string", "n": "int64"}, key="user", compact=True)
        log.append("spend", [{"user": "a", "n": 1}, {"user": "b", "n": 2}])
        with kept_views(app, home, log) as keeper:
            keeper.catch_up()
            keeper.stop()
            install(hook)
            try:
                with pytest.raises(Interrupted):
                    rebuild(keeper, "spend")
            finally:
                install(None)
        with kept_views(app, home, log) as keeper:
            assert [(one.spec.version, one.active) for one in keeper.store.stored()] == [(1, True)]
            assert rebuild(keeper, "spend").version == 2
            assert [(one.spec.version, one.active) for one in keeper.store.stored()] == [(2, True)]
            assert sorted(row["n"] for row in keeper.view("spend").rows()) == [1, 2]
