"""Cards: whatever a name or a value is, it is shown as text, and a card never grows large."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater
from headwater import console
from headwater.apps import App
from headwater.apps.status import Graph, Node, QueryStatus
from headwater.log.cards import description_html, topic_html
from headwater.log.port import Description, PartitionInfo
from headwater.log.topic import Retention, Topic
from headwater.notebook import card, grid, picture
from headwater.schema import parse_schema

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</div></td></table><h1>",
    "&lt;b&gt;",
    "' onmouseover='alert(1)",
    "</style><script>",
    "\x00\x1b[31m",
    "\u202eevil",
    "a" * 100_000,
]
ALLOWED = {"style", "div", "span", "b", "table", "thead", "tbody", "tr", "th", "td", "img"}


class Parsed(HTMLParser):
    """What a browser would make of a card: its tags with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.texts.append(data)


def checked(html: str) -> Parsed:
    """The card, parsed; only our own tags, without anything that could run or be fetched."""
    parsed = Parsed(html)
    assert not parsed.open, "every tag is closed"
    assert {tag for tag, _ in parsed.tags} <= ALLOWED
    for _, attributes in parsed.tags:
        assert set(attributes) <= {"class", "alt", "src"}
        assert (attributes.get("src") or "data:image/svg+xml;base64,").startswith("data:image/svg+xml;base64,")
    return parsed


@given(
    name=st.text() | st.sampled_from(HOSTILE),
    values=st.lists(
        st.none() | st.text() | st.sampled_from(HOSTILE) | st.integers() | st.floats() | st.binary() | st.booleans(),
        max_size=5,
    ),
)
def test_whatever_is_shown_is_text(name: str, values: list[object]) -> None:
    columns = [name] * len(values)
    html = card(name, name, facts={name: name}, body=grid(columns, [values]), note=name[:500])
    parsed = checked(html)
    assert sum(tag == "td" for tag, _ in parsed.tags) == len(values)


@given(number=st.integers(-(2**63), 2**63 - 1))
def test_integers_have_all_their_digits(number: int) -> None:
    assert str(number) in checked(grid(["n"], [[number]])).texts


def test_times_are_in_utc_nulls_are_told_and_floats_are_exact() -> None:
    at = datetime(2026, 1, 1, 10, 0, 5, tzinfo=UTC)
    assert checked(grid(["at", "x", "y"], [[at, None, 0.1]])).texts[3:] == ["2026-01-01T10:00:05Z", "null", "0.1"]


def test_rows_columns_and_texts_are_bounded_and_what_is_left_out_is_said() -> None:
    html = grid([f"c{number}" for number in range(500)], [["x" * 1_000_000] * 500] * 1000)
    assert len(html) < 50_000
    texts = " ".join(checked(html).texts)
    assert "There are more rows." in texts
    assert "480 more columns" in texts


def test_a_picture_is_an_image_that_keeps_its_styles_to_itself() -> None:
    graph = Graph(app=HOSTILE[0], nodes=(Node(name=HOSTILE[1], kind="topic"),), edges=())
    html = graph._repr_html_()
    [(_, image)] = [(tag, attributes) for tag, attributes in checked(html).tags if tag == "img"]
    svg = base64.b64decode(str(image["src"]).partition(",")[2]).decode()
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert "<script" not in svg
    assert image["alt"] == "1 topic."
    assert picture("<svg/>", alt='"').count("&quot;") == 1


@pytest.mark.parametrize("name", HOSTILE)
def test_queries_and_apps_are_safe_whatever_they_hold(name: str) -> None:
    status = QueryStatus(name=name, kind="view", error=name, watermark_us=0, lag_rows=3)
    assert "3 rows" in checked(status._repr_html_()).texts
    checked(
        Graph(app=name, nodes=tuple(Node(name=f"{name}{n}", kind="query") for n in range(3)), edges=())._repr_html_()
    )


def test_a_very_large_graph_is_told_in_words() -> None:
    nodes = tuple(Node(name=f"t{number}", kind="topic") for number in range(1000))
    html = Graph(app="large", nodes=nodes, edges=())._repr_html_()
    assert len(html) < 5_000
    assert "1,000 nodes" in html


def test_a_topic_shows_its_columns_and_how_it_is_kept() -> None:
    schema = parse_schema("id int64 not null, user string")
    topic = Topic(
        name="orders", id="x", schema=schema, partitions=3, key=("user",), retention=Retention(seconds_max=86_400)
    )
    texts = checked(topic_html(topic)).texts
    assert texts[:2] == ["topic", "orders"]
    assert [text for text in texts if text in {"id", "int64", "not null", "user", "string", "1 day"}] == [
        "user", "1 day", "id", "int64", "not null", "user", "string",
    ]  # fmt: skip


def test_a_description_shows_what_partitions_hold_and_few_of_them() -> None:
    topic = Topic(name="orders", id="x", schema=parse_schema("id int64"), partitions=10_000)
    held = [
        PartitionInfo(partition=n, offset_start=0, offset_next=2, rows=2, bytes=10, segments=1, appended_at_us=None)
        for n in range(10_000)
    ]
    html = description_html(Description(topic=topic, partitions=held))
    assert "20,000" in checked(html).texts
    assert html.count("<tr>") < 30


def test_an_app_is_its_graph_and_a_query_what_it_reads_and_writes() -> None:
    app = App("shop", log="./nowhere")
    app.input("orders", {"user": "string"})

    @app.view(key="user", late="orders.late")
    def spend(orders):  # type: ignore[no-untyped-def]  # as users write it
        return orders

    assert "not running" in " ".join(checked(app._repr_html_()).texts)
    texts = checked(app.query("spend")._repr_html_()).texts
    assert {"orders", "spend", "user", "orders.late"} <= set(texts)


def said(html: str) -> str:
    return " ".join(checked(html).texts)


def test_a_log_is_shown_with_its_topics_and_a_read_with_its_first_rows(tmp_path: Path) -> None:
    with headwater.open(tmp_path / "log") as log:
        assert "no topics yet" in said(log._repr_html_())
        log.create("orders", {"id": "int64", "user": "string"}, key="user")
        log.append("orders", [{"id": 2**62 + number, "user": HOSTILE[0]} for number in range(30)])
        shown = said(log._repr_html_())
        assert "orders" in shown
        assert "30" in shown
        read = said(log.read("orders")._repr_html_())
        assert str(2**62 + 9) in read
        assert str(2**62 + 10) not in read
        assert "There are more rows." in read


def test_the_views_of_an_app_are_listed() -> None:
    app = App("shop", log="data")

    @app.view(key="user")
    def spend(orders: object) -> object:
        return orders

    shown = said(app.views._repr_html_())
    assert all(text in shown for text in ("shop", "spend", "user", "orders"))


def test_cards_have_the_colours_of_the_console() -> None:
    css = (Path(console.__file__).parent / "static" / "console.css").read_text()
    for colour in re.findall(r"--hw-\w+:(#[0-9a-f]{6})", card("topic", "orders")):
        assert colour in css
