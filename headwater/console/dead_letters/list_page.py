"""Dead letters: which topics have some, how many wait for a decision, and why most of them were given up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from headwater.console.context import context
from headwater.console.kit.layout import card, heading, search_box
from headwater.console.kit.live import every, read
from headwater.console.kit.sparkline import sparkline
from headwater.console.kit.table import Column, Pages, Row, Table, drawn, link, toned
from headwater.console.kit.words import ago, count
from headwater.console.pages import screen
from headwater.console.visit import Visit
from headwater.errors import HeadwaterError
from headwater.log.dead_letters import SUFFIX
from headwater.services.dead_letter_index import Reason

COLUMNS = (
    Column(name="topic", label="Dead letters of"),
    Column(name="open", label="Open", align="right"),
    Column(name="parked", label="Parked", align="right"),
    Column(name="redriven", label="Redriven", align="right"),
    Column(name="reason", label="Most open ones for", clip=True),
    Column(name="history", label="Last minutes", width="120px"),
    Column(name="last", label="Last dead letter", align="right"),
)


def dead_letters_path(topic: str) -> str:
    return f"/console/dead-letters/{quote(topic, safe='')}"


@screen("/dead-letters", title="Dead letters", group="Attention", icon="mark_email_unread", key="d", order=10)
def dead_letters(visit: Visit) -> None:
    page = DeadLetterTopics(visit)
    every(2.0, page.look, page.show)


@dataclass(frozen=True, kw_only=True)
class TopicSummary:
    """The numbers of a dead-letter topic, by reason."""

    topic: str
    reasons: list[Reason]

    def total(self, state: str) -> int:
        return sum(one.states[state] for one in self.reasons)

    @property
    def last_us(self) -> int | None:
        return max((one.last_us for one in self.reasons), default=None)


class DeadLetterTopics:
    """The list of dead-letter topics, those with the most dead letters first."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._shown: dict[str, TopicSummary] = {}
        with heading(
            "Dead letters",
            under="Rows that were given up, kept whole with the reason. Redrive them, or park them.",
            why="dead_letters",
        ):
            self._box = search_box("Filter topics", self._again)
        with card(flush=True):
            self._table = Table(COLUMNS, label="Dead letters", none="No dead letters. Nothing was given up.")
            self._pages = Pages(self._again)

    def look(self) -> list[str]:
        """All dead-letter topics; reasons are read only for those on the page."""
        known = context()
        known.history.wait()
        text = (self._box.value or "").lower()
        service = self._visit.services.dead_letters
        names = [name for name in service.topics() if text in name.lower()]
        rows = {name: one.rows for name, one in known.history.topics.items()}
        names.sort(key=lambda name: (-rows.get(name, 0), name))
        shown = {}
        for name in names[self._pages.first : self._pages.first + self._pages.size]:
            try:
                shown[name] = TopicSummary(topic=name, reasons=service.reasons(name))
            except HeadwaterError:  # deleted while we looked
                continue
        self._shown = shown
        return names

    def show(self, names: list[str]) -> None:
        self._table.set_rows([_row(self._shown[name]) for name in self._pages.part(names) if name in self._shown])

    async def _again(self, _: object = None) -> None:
        self.show(await read(self.look))


def _row(one: TopicSummary) -> Row:
    worst = max(one.reasons, key=lambda reason: reason.open, default=None)
    # Any: see `Row`.
    told: Any = toned("–", "quiet")
    if worst is not None and worst.open:
        told = f"{worst.name}, {count(worst.open)}"
    cells = [
        link(one.topic.removesuffix(SUFFIX), dead_letters_path(one.topic)),
        toned(count(one.total("open")), "warn" if one.total("open") else "quiet"),
        count(one.total("parked")),
        count(one.total("redriven")),
        told,
        drawn(sparkline(context().history.values("topic", one.topic, "rate"))),
        ago(one.last_us),
    ]
    return Row(cells, key=one.topic)
