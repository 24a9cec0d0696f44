"""What an alert rule would say now, and how often it would have fired of late, before it is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.alerts import Measurement, Rule
from headwater.console.context import context
from headwater.console.history import Kind
from headwater.console.visit import Visit
from headwater.errors import HeadwaterError

#: Subjects whose past is drawn: those with the largest values.
LINES_MAX = 3


@dataclass(frozen=True, kw_only=True)
class RulePreview:
    """What a rule would find now, and how often it would have fired of late; or why it cannot be saved."""

    readings: Sequence[Measurement] = ()
    lines: dict[str, list[tuple[float, float]]] | None = None
    fired: int = 0
    trouble: str = ""


def episodes(points: Sequence[tuple[float, float]], *, threshold: float, for_seconds: float) -> int:
    """How often a rule would have begun to fire over measured points.

    >>> episodes([(0, 1), (2, 9), (4, 9), (6, 1), (8, 9)], threshold=5, for_seconds=0)
    2
    >>> episodes([(0, 1), (2, 9), (4, 9), (6, 1), (8, 9)], threshold=5, for_seconds=2)
    1
    """
    count, since, fires = 0, None, False
    for at, value in points:
        if value <= threshold:
            since, fires = None, False
            continue
        since = at if since is None else since
        if not fires and at - since >= for_seconds:
            count, fires = count + 1, True
    return count


def preview_of(visit: Visit, rule: Rule, *, form: str) -> RulePreview:
    """Evaluate a rule without keeping it; what the same form has asked before is stopped."""
    try:
        readings = visit.services.alerts.preview(rule, form=form)
    except HeadwaterError as error:
        return RulePreview(trouble=str(error))
    subjects = sorted(readings, key=lambda one: -one.value)[:LINES_MAX]
    lines = {one.subject: points for one in subjects if (points := _lately(rule, one.subject))}
    if not lines:
        return RulePreview(readings=readings)
    fired = sum(episodes(points, threshold=rule.threshold, for_seconds=rule.for_seconds) for points in lines.values())
    begin, end = min(points[0][0] for points in lines.values()), max(points[-1][0] for points in lines.values())
    lines["limit"] = [(begin, rule.threshold), (end, rule.threshold)]
    return RulePreview(readings=readings, lines=lines, fired=fired)


def _lately(rule: Rule, subject: str) -> list[tuple[float, float]]:
    """What was measured of a subject of late; only some kinds of rules are about such measures."""
    kind: Kind = "query" if rule.query else "group"
    measure = {
        ("lag", "rows"): "lag",
        ("lag", "seconds"): "lag_seconds" if kind == "group" else "",
        ("watermark_delay", "rows"): "watermark_delay",
    }.get((rule.kind, rule.unit), "")
    points = context().history.series(kind, subject, measure) if measure else []
    return points if len(points) > 1 else []
