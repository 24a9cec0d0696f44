"""The section of the documentation that shows a run: written by the run itself, so that no figure is copied by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.soak.picture import svg
from benchmarks.soak.samples import MEASURES, Sample, trend

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
HEADING = "## How steady an app is"
#: The section stands in front of this one.
NEXT_HEADING = "## What sets the limits"

JAVA = (
    "Java takes heap while it has work, up to `spark.driver.memory` (1 GB unless the app's `conf` says otherwise), and gives it back late. All its memory therefore",
    "rises for a while, to that bound and what classes, compiled code and native libraries need; a leak would show in the heap after a collection. Plans and metrics of past",
    "batches, which Spark keeps for its web page by the thousand, are bounded to the last twenty, since a session has no such page unless it is asked for.",
)


def section(samples: Sequence[Sample], *, rows: int, rate: int, machine: str) -> str:
    """The text of the section, with a table of all measures."""
    minutes = samples[-1]["seconds"] / 60
    lines = [
        HEADING,
        "",
        f"`make bench NAME=soak` feeds an app with {rate:,} rows a second for {minutes:.0f} minutes, {rows:,} rows in all: a count by key and window of "
        "ten seconds into a topic, and a view of the totals of a thousand keys. Topics keep two minutes, and Spark keeps twenty batches, so that whatever "
        "still rises is a leak. At the end the totals are compared with what was fed, and were the same.",
        f"One run; {machine}. The first third is the warming-up.",
        "",
        "![Memory, open files, files on disk and disk over the time of the run](../images/soak.svg)",
        "",
        "| what | second third | last third | highest | change per hour, in the last two thirds |",
        "|---|---|---|---|---|",
    ]
    for measure in MEASURES:
        found = trend(samples, measure.name)
        cells = (_shown(found.middle), _shown(found.last), _shown(found.highest), f"{found.per_hour:+,.0f}")
        lines.append(f"| {measure.title}, {measure.unit} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *JAVA, ""])


def _shown(value: float) -> str:
    return f"{value:,.1f}" if value < 10 else f"{value:,.0f}"


def inserted(page: str, text: str) -> str:
    """The page with the section in its place, instead of the one that an earlier run wrote.

    >>> inserted("# A page\\n\\n## What sets the limits\\n", "## How steady an app is\\n\\nVery.\\n")
    '# A page\\n\\n## How steady an app is\\n\\nVery.\\n\\n## What sets the limits\\n'
    """
    without = re.sub(rf"{re.escape(HEADING)}\n.*?(?=^## |\Z)", "", page, flags=re.DOTALL | re.MULTILINE)
    before, heading, after = without.partition(NEXT_HEADING)
    return f"{before.rstrip()}\n\n{text.rstrip()}\n\n{heading}{after}" if heading else f"{before.rstrip()}\n\n{text}"


def write(samples: Sequence[Sample], *, rows: int, rate: int, machine: str, docs: Path = DOCS) -> list[Path]:
    """Write the picture and the section; returns both files."""
    page, picture = docs / "explanation" / "app-performance.md", docs / "images" / "soak.svg"
    title = f"An app at {rate:,} rows a second for {samples[-1]['seconds'] / 60:.0f} minutes"
    picture.write_text(svg(samples, title=title), encoding="utf-8")
    text = section(samples, rows=rows, rate=rate, machine=machine)
    page.write_text(inserted(page.read_text(encoding="utf-8"), text), encoding="utf-8")
    return [page, picture]
