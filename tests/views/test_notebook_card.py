"""A view in a notebook: in the keeper's process, over its API, and left by an app that ended."""

from __future__ import annotations

import pytest

from headwater.apps import App
from headwater.apps.errors import RunnerNotFound
from headwater.errors import ArgumentInvalid
from headwater.log import Log
from headwater.views import ViewKeeper
from headwater.views.errors import StatementInvalid
from tests.notebook.test_cards import HOSTILE, checked
from tests.notebook.test_live import Output, output
from tests.views.conftest import SPEND, spec
from tests.views.test_view import Reader, readers, view

__all__ = ["output", "view"]


@readers
def test_a_view_shows_its_first_rows_in_the_order_of_their_keys(view: Reader, log: Log) -> None:
    log.append("spend", [{"card": 10, "total": 0.1, "shop": None}])
    view.get(card=10, at_least={"spend": log.end_offsets("spend")})
    texts = checked(view._repr_html_()).texts
    assert texts[:2] == ["view", "spend"]
    assert texts[texts.index("total") + 2 :] == [
        "0", "0.0", "a", "1", "1.5", "b", "2", "3.0", "c", "10", "0.1", "null",
    ]  # fmt: skip


@readers
def test_only_a_few_rows_are_read(view: Reader, log: Log) -> None:
    shops = [shop for shop in HOSTILE if "\0" not in shop]  # PostgreSQL has no text with a zero byte
    log.append("spend", [{"card": card, "shop": shops[card % len(shops)]} for card in range(1000)])
    view.get(card=0, at_least={"spend": log.end_offsets("spend")})
    html = view._repr_html_()
    assert "There are more rows." in checked(html).texts
    assert html.count("<tr>") == 11


@readers
def test_a_live_view_follows_and_an_interrupt_ends_it(view: Reader, log: Log, output: Output) -> None:
    def react(html: str) -> None:
        if len(output.frames) == 1:
            log.append("spend", [{"card": 77, "total": 73314510714175488.0}])
        elif '<td class="hw-number">77</td>' in html and "Live." in html:
            raise KeyboardInterrupt

    output.react = react
    view.live(order="card DESC", rows_max=2)
    last = checked(output.frames[-1]).texts
    assert last[-1] == "Interrupted; call it again to go on."
    assert [text for text in last if text in {"77", "2", "0"}] == ["77", "2"]


@readers
def test_a_live_view_stops_by_itself(view: Reader, output: Output) -> None:
    view.live(seconds=0.05)
    assert [checked(frame).texts[-1] for frame in (output.frames[0], output.frames[-1])] == [
        "Live.", "Stopped after 0.05 s; call it again to go on.",
    ]  # fmt: skip


@readers
def test_what_cannot_be_meant_is_refused_before_anything_is_shown(view: Reader, output: Output) -> None:
    with pytest.raises(ArgumentInvalid, match="rows_max"):
        view.live(rows_max=0)
    with pytest.raises(StatementInvalid):
        view.live(order="no_such_column")
    assert output.frames == []


def test_a_view_that_cannot_be_read_says_why(log: Log, keeper: ViewKeeper) -> None:
    log.create("spend", SPEND, key="card", compact=True)
    gone = keeper.add(spec())
    gone.name = "<gone>"
    assert "<gone>" in " ".join(checked(gone._repr_html_()).texts)


def test_a_view_of_an_app_that_nobody_runs_is_not_live(tmp_path_factory: pytest.TempPathFactory) -> None:
    app = App("shop", log=tmp_path_factory.mktemp("log"))
    app.view(key="user", name="spend")(lambda orders: orders)
    resting = app.views["spend"]
    with pytest.raises(RunnerNotFound):
        resting.live()
    assert checked(resting._repr_html_()).texts[:2] == ["view", "spend"]
