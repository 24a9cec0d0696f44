"""What can go wrong when a database is captured."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import Conflict, StorageError, UsageError


@dataclass(eq=False, kw_only=True)
class SourceInvalid(UsageError):
    """A database, or a table of it, cannot be captured as it is."""

    source: str
    why: str
    instead: str
    problem = "{source} cannot be captured: {why}."
    remedy = "{instead}."


@dataclass(eq=False, kw_only=True)
class CaptureChanged(Conflict):
    """A program declares a capture with another database, other topics or another envelope than it was created with."""

    capture: str
    setting: str
    before: str
    now: str
    problem = "Capture {capture!r} was created with `{setting}` {before}, and is now declared with {now}."
    remedy = "Declare it as it was, or under another name; `headwater capture drop {capture}` removes the old one, whose topics stay."


@dataclass(eq=False, kw_only=True)
class SourceReplaced(Conflict):
    """The database no longer has the changes that follow the position of a capture: it was replaced or restored."""

    source: str
    capture: str
    why: str
    problem = "Capture {capture!r} cannot go on where it was in {source}: {why}."
    remedy = (
        "If the database was restored, drop the capture and create it again: a new snapshot then brings its topics up to date. "
        "Nothing was changed."
    )


@dataclass(eq=False, kw_only=True)
class SourceUnreachable(StorageError):
    """A database cannot be reached: it is down, or the connection was cut."""

    source: str
    why: str
    problem = "{source} cannot be reached: {why}."
    remedy = "Check that the database runs and that its address is right; the capture goes on where it was."


@dataclass(eq=False, kw_only=True)
class ColumnRetyped(Conflict):
    """A column of a captured table has another type now, and its topic cannot hold both."""

    table: str
    column: str
    before: str
    now: str
    topic: str
    problem = "Column {column!r} of table {table!r} is now {now}, and topic {topic!r} has {before}."
    remedy = (
        "Give the column its old type again and start the capture; or drop the capture, delete the topic, and create the capture "
        "again. Nothing was appended, and the database keeps the changes."
    )
