"""What can go wrong when a target is kept in sync."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import Conflict, QueryError, UsageError


@dataclass(eq=False, kw_only=True)
class SyncInvalid(UsageError):
    """A sync cannot be defined or run so."""

    sync: str
    why: str
    instead: str
    problem = "Sync {sync!r} cannot run: {why}."
    remedy = "{instead}."


@dataclass(eq=False, kw_only=True)
class SyncFenced(Conflict):
    """Another process has taken a sync over."""

    sync: str
    problem = "Another process runs sync {sync!r} now."
    remedy = "Stop this process. Nothing was applied twice."


@dataclass(eq=False, kw_only=True)
class TopicGap(QueryError):
    """A topic no longer has all changes that follow the position of a target."""

    sync: str
    topic: str
    why: str
    problem = "Sync {sync!r} cannot go on where it was in topic {topic!r}: {why}."
    remedy = "Run `headwater sync rebuild {sync} {topic}`: the target is then made again from the whole topic."


@dataclass(eq=False, kw_only=True)
class TargetRefused(QueryError):
    """A target accepts no rows as things are: the credentials are wrong, or a table does not fit."""

    target: str
    why: str
    instead: str
    problem = "{target} refuses this sync: {why}."
    remedy = "{instead}, then run the sync again. Nothing of this step was applied."


@dataclass(eq=False, kw_only=True)
class ChangeRefused(QueryError):
    """A target does not accept the change of one row: a constraint is violated, or a value does not fit."""

    target: str
    table: str
    key: str
    why: str
    problem = "Table {table!r} of {target} refuses the row with {key}: {why}."
    remedy = (
        "Correct the row or the table, and run the sync again; or create the sync with `--dead-letters`, which sets such rows "
        "aside. Nothing of this step was applied."
    )
