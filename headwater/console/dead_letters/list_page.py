"""Dead letters: the topics that have some, how many are open, and the most frequent reason."""

from __future__ import annotations

from headwater.console.context import Visit, context
from headwater.console.kit.chart import sparkline
from headwater.console.kit.list_page import ListPage
from headwater.console.kit.table import Column, Row, drawn, link, toned
from headwater.console.kit.words import ago, count
from headwater.console.pages import path_to, screen
from headwater.log.dead_letters import SUFFIX


@screen("/dead-letters", title="Dead letters", group="Attention", icon="mark_email_unread", key="d", order=10)
def dead_letters(visit: Visit) -> None:
    DeadLetterTopics(visit).start()


class DeadLetterTopics(ListPage[str]):
    """The list of dead-letter topics, those with the most rows first."""

    title = "Dead letters"
    under = "Rows that were given up, kept whole with the reason. Redrive them, or park them."
    why = "dead_letters"
    columns = (
        Column(name="topic", label="Dead letters of"),
        Column(name="open", label="Open", align="right"),
        Column(name="parked", label="Parked", align="right"),
        Column(name="redriven", label="Redriven", align="right"),
        Column(name="reason", label="Most open ones for", clip=True),
        Column(name="history", label="Last minutes", width="120px"),
        Column(name="last", label="Last dead letter", align="right"),
    )
    none = "No dead letters. Nothing was given up."
    placeholder = "Filter topics"

    def items(self) -> list[str]:
        history = context().history
        history.wait()
        rows = {name: status.rows for name, status in history.topics.items()}
        return sorted(self.visit.services.dead_letters.topics(), key=lambda name: (-rows.get(name, 0), name))

    def row(self, item: str) -> Row:
        reasons = self.visit.services.dead_letters.reasons(item)
        totals = {state: sum(reason.states[state] for reason in reasons) for state in ("open", "parked", "redriven")}
        worst = max(reasons, key=lambda reason: reason.open, default=None)
        cells = [
            link(item.removesuffix(SUFFIX), path_to("dead-letters", item)),
            toned(count(totals["open"]), "warn" if totals["open"] else "quiet"),
            count(totals["parked"]),
            count(totals["redriven"]),
            f"{worst.name}, {count(worst.open)}" if worst is not None and worst.open else toned("–", "quiet"),
            drawn(sparkline(context().history.values("topic", item, "rate"))),
            ago(max((reason.last_us for reason in reasons), default=None)),
        ]
        return Row(cells, key=item)
