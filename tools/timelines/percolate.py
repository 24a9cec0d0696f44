"""Documents of a stream matched against stored queries."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        "Percolate(queries=searches)",
        until=50,
        about="Queries are stored, and documents arrive. Each document is matched against the queries of its micro-batch. A query "
        "that is added, changed or deleted (struck out) counts from the next micro-batch on.",
    )
    drawn.lane("query ann").span(4, 30, "flat AND garden", kind="open").span(30, 50, "house", kind="open")
    drawn.lane("query ben").span(14, 38, "price:<300", kind="open").span(38, 50, "price:<300", kind="retracted")
    documents = drawn.lane("documents")
    documents.event(10, "flat, garden").event(22, "flat, garden, 280").event(34, "house, 250").event(44, "house, 290")
    drawn.lane("matches").event(10, "ann").event(22, "ann, ben").event(34, "ann, ben").event(44, "ann")
    return drawn
