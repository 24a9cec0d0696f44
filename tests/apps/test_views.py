"""Views of several apps side by side: each is found, and a name that two of them have is told apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pyarrow as pa
import pytest

from headwater.apps.views import LogViews, Place
from headwater.errors import NotFound, NotPossible
from headwater.views.statement import Stoppable


class App:
    """The views of one app; what is asked of it comes back with its name."""

    def __init__(self, name: str, *views: str) -> None:
        self.name = name
        self.views = list(views)

    def names(self) -> list[str]:
        return self.views

    def view(self, name: str) -> Any:
        return f"{self.name}/{name}"

    def describe(self, name: str) -> dict[str, Any]:
        return {"name": name}

    def query(self, statement: str, parameters: Any, *, stoppable: Stoppable | None = None) -> pa.Table:
        assert stoppable is None
        return pa.table({"app": [self.name], "statement": [statement], "parameters": [str(parameters)]})


def views(*apps: App) -> LogViews:
    # An app of this kind has no views to be subscribed to, and none is asked for here.
    return LogViews(cast(Mapping[str, Place], {app.name: app for app in apps}))


def test_a_name_of_two_apps_matters_only_to_whoever_asks_for_it() -> None:
    found = views(App("a", "spend", "only_a"), App("b", "spend", "only_b"))
    assert found.names() == ["only_a", "only_b", "spend"]
    assert (found.owner("only_a"), str(found.view("only_b"))) == ("a", "b/only_b")
    assert [(one["app"], one["name"]) for one in found.described()] == [
        ("a", "only_a"),
        ("b", "only_b"),
        ("a", "spend"),
        ("b", "spend"),
    ]
    for ask in (found.owner, found.view, found.table, found.describe):
        with pytest.raises(NotPossible, match=r"'spend': a, b.*--app.*\?app="):
            ask("spend")
    with pytest.raises(NotFound, match="Did you mean 'spend'"):
        found.view("spnd")


def test_a_statement_goes_to_the_app_that_has_all_its_views() -> None:
    found = views(App("a", "spend"), App("b", "cities"))
    answer = found.query("SELECT 1", [2], over=["cities"])
    assert answer is not None
    assert answer.to_pylist() == [{"app": "b", "statement": "SELECT 1", "parameters": "[2]"}]
    assert found.query("SELECT 1", over=["cities", "spend"]) is None
