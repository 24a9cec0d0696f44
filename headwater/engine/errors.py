"""Ways in which the engine of keyed operators fails: its state, its steps, its aggregates and changelogs."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import QueryError, UsageError


@dataclass(eq=False, kw_only=True)
class StateMissing(QueryError):
    """The state that a batch must begin with is not there."""

    operator: str
    batch: int
    problem = "The state of operator {operator!r} before batch {batch} is gone, or was kept by an operator with other settings."
    remedy = "Rebuild it from the input with `headwater.operators.rebuild`, or start the query with a new checkpoint; `headwater replay QUERY` does so for an app."


@dataclass(eq=False, kw_only=True)
class StateChanged(QueryError):
    """The state on disk belongs to another form of the operator."""

    operator: str
    why: str
    what: str
    problem = "The state of operator {operator!r} does not fit: {why}."
    remedy = "Either {what}, or start the query with a new checkpoint."


@dataclass(eq=False, kw_only=True)
class StateFolderUnknown(QueryError):
    """A stateful operator runs in a session that has no place for state."""

    operator: str
    problem = "Operator {operator!r} keeps state, but the session names no folder for it."
    remedy = "Make the session with `headwater.session(state=…)`, or set `spark.headwater.state`."


@dataclass(eq=False, kw_only=True)
class EventTimeUnknown(UsageError):
    """An operator needs the event time of its rows, and cannot tell which column that is."""

    operator: str
    why: str
    problem = "{operator} needs the event time of its rows, but {why}."
    remedy = "Declare it with the topic, as in `log.create(…, time='at')` or `app.input(…, time='at')`, or tell the operator: `time='at'`."


@dataclass(eq=False, kw_only=True)
class StepFailed(QueryError):
    """The code of an operator's step raised an error."""

    operator: str
    batch: str
    keys: str
    offsets: str
    error: str
    problem = "Operator {operator!r} failed in batch {batch}, on keys such as {keys} ({offsets}): {error}."
    remedy = "Correct the step and restart the query: the batch is done again from the state before it."


@dataclass(eq=False, kw_only=True)
class StepInvalid(QueryError):
    """An operator's step returned something that does not fit what it declared."""

    operator: str
    what: str
    why: str
    problem = "The step of operator {operator!r} returned {what} that does not fit: {why}."
    remedy = "Return tables with the declared columns and types."


@dataclass(eq=False, kw_only=True)
class ChangelogInvalid(QueryError):
    """The changes of a table contradict one another, or what the table holds."""

    operator: str
    key: str
    why: str
    problem = "Operator {operator!r} cannot follow its table at {key}: {why}; nothing of this batch was saved."
    remedy = "Keep `_op`, `_partition` and `_offset` in what it reads, and give `key=` where rows replace one another."


@dataclass(eq=False, kw_only=True)
class NumberTooLarge(QueryError):
    """A sum of whole numbers does not fit into 64 bits."""

    aggregate: str
    argument: str
    problem = (
        "The {aggregate} of {argument} is too large for a whole number of 64 bits; nothing of this batch was saved."
    )
    remedy = "Cast the argument to decimal(38, 0) or double, and rebuild the state."


@dataclass(eq=False, kw_only=True)
class AggregateInvalid(UsageError):
    """An aggregate cannot be computed over a column of this type."""

    aggregate: str
    argument: str
    kind: str
    expected: str
    problem = "`agg.{aggregate}` cannot be computed over {argument}, which is of type {kind}."
    remedy = "Give it {expected}, or cast the column first."
