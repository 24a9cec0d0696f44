"""Ways in which views and SQL statements fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headwater.errors import Conflict, LogError, QueryError, StorageError, UsageError


@dataclass(eq=False, kw_only=True)
class ViewInvalid(UsageError):
    """A view is declared in a way that no store can keep."""

    view: str
    why: str
    problem = "View {view!r} cannot be kept: {why}."
    remedy = "Change the view's key, its columns or its name."


@dataclass(eq=False, kw_only=True)
class ViewKeyInvalid(UsageError):
    """A look-up does not name the view's key."""

    view: str
    why: str
    key: str
    problem = "This is no key of view {view!r}: {why}."
    remedy = "Its key is {key}; give each of these columns once."


@dataclass(eq=False, kw_only=True)
class StatementInvalid(UsageError):
    """A text is no SQL that may be run here."""

    statement: str
    why: str
    problem = "This SQL cannot be run: {why}. It was: {statement}."
    remedy = "Give one SELECT (or WITH … SELECT) over topics and views."


@dataclass(eq=False, kw_only=True)
class StatementExceeded(UsageError):
    """A statement would take more time or memory, or give more rows, than one may."""

    statement: str
    #: "60 seconds", "100,000 rows"
    bound: str
    http_status: ClassVar[int] = 422
    problem = "This SQL was ended: it came to more than {bound}. It was: {statement}."
    remedy = (
        "Ask for less at once, with a WHERE, an aggregate or a LIMIT. The server may allow more: `headwater serve` and "
        "`headwater run` have `--statement-seconds`, `--statement-memory` and `--answer-rows`."
    )


@dataclass(eq=False, kw_only=True)
class ViewConflict(Conflict):
    """A view on disk does not fit what it is now declared to be."""

    view: str
    version: int
    why: str
    problem = "View {view!r} (version {version}) is not what it was: {why}."
    remedy = "Rebuild it under a new version with `headwater view rebuild {view}`; until then the old one is served."


@dataclass(eq=False, kw_only=True)
class ViewBehind(LogError):
    """A view did not come as far as a reader asked for, in the time that it would wait."""

    view: str
    topic: str
    wanted: str
    reached: str
    waited: float
    http_status: ClassVar[int] = 503
    problem = "View {view!r} reflects {topic!r} up to {reached}, not yet up to {wanted}, after {waited:.1f} s."
    remedy = "Wait longer with `timeout`, read without `at_least`, or see `headwater query list` for what holds it up."


@dataclass(eq=False, kw_only=True)
class StoreUnreachable(StorageError):
    """The database that keeps the views does not answer."""

    store: str
    why: str
    http_status: ClassVar[int] = 503
    problem = "The view store in {store} cannot be used: {why}."
    remedy = "Start it, or correct its address and credentials; views go on by themselves when it is back."


@dataclass(eq=False, kw_only=True)
class ViewRowInvalid(QueryError):
    """A row of a changelog cannot become a row of its view."""

    view: str
    topic: str
    column: str
    why: str
    problem = "View {view!r} stands still: in its changelog {topic!r}, column {column!r} {why}."
    remedy = "Correct the query that writes it, then rebuild the view with `headwater view rebuild {view}`."
