"""What is written in a graph: cut to its place, and free of what would act upon a terminal or a parser."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

from headwater.runtime.status import Graph, Node


def plain(text: str) -> str:
    """A text in one line without control characters, which neither XML nor a terminal can bear.

    >>> plain("a\\n\\x1b[2Jb")
    'a �[2Jb'
    """
    return "".join(" " if letter in "\t\r\n" else letter if letter.isprintable() else "�" for letter in text)


def cut_cells(text: str, cells: int) -> str:
    """A text in at most so many cells of a terminal; a dot at the end says that there was more.

    >>> cut_cells("headwater", 5)
    'head…'
    """
    text = plain(text)
    return text if cell_len(text) <= cells else set_cell_size(text, max(0, cells - 1)).rstrip() + "…"


def kind_and_state(node: Node) -> str:
    return f"{node.kind} {node.state}" if node.state else node.kind


def summary(graph: Graph) -> str:
    """The graph in a sentence or two, for those who have it read to them."""
    kinds = [(kind, sum(node.kind == kind for node in graph.nodes)) for kind in ("topic", "query", "view", "sink")]
    names = {"topic": "topics", "query": "queries", "view": "views", "sink": "sinks"}
    counts = ", ".join(f"{count} {kind if count == 1 else names[kind]}" for kind, count in kinds if count)
    edges = "; ".join(f"{first} to {second}" for first, second in graph.edges)
    return f"{counts or 'Nothing'}. Rows flow from {edges}." if edges else f"{counts or 'Nothing'}."
