"""Every way Headwater can fail, as one tree that branches by what the caller can do.

    HeadwaterError
    ├── UsageError            the call is wrong: change the call
    ├── NotFound              the thing named does not exist: create it, or correct the name
    ├── NotAllowed            the caller may not do this: use a token that may, or another place
    ├── Conflict              another process or caller was first: read again, then decide again
    ├── LogError              the log cannot serve this now
    ├── QueryError            a streaming query cannot continue as it is: correct the code or the state, and restart it
    └── StorageError          the machine or the bytes are at fault: repair, free space, or restore

Each class has typed facts, a `problem` and a `remedy`; both are format strings over the facts. A class lives beside what
raises it, in `errors.py` of its folder or in its module; those that many folders raise are here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar

#: All classes of the package, by name: over HTTP an error has the name of its class.
_KINDS: dict[str, type[HeadwaterError]] = {}
#: A full stop after a mark that ends the sentence already.
_SECOND_STOP = re.compile(r"(?<=[?!])\.(?=\s|$)|(?<=[\w)'\"`]\.)\.(?=\s|$)")


@dataclass(eq=False, kw_only=True)
class HeadwaterError(Exception):
    """The base of all errors of Headwater."""

    problem: ClassVar[str] = "Headwater could not do what it was asked."
    remedy: ClassVar[str] = "Read the facts of the error, and try again."
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if cls.__module__.startswith("headwater."):
            _KINDS[cls.__name__] = cls

    def __post_init__(self) -> None:
        super().__init__(str(self))

    def facts(self) -> dict[str, Any]:
        """The facts of this error, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def branch(self) -> str:
        """The name of the branch of the tree that this error is on."""
        return next(
            (kind.__name__ for kind in type(self).__mro__ if HeadwaterError in kind.__bases__), "HeadwaterError"
        )

    def __str__(self) -> str:
        return f"{self.filled(self.problem)} {self.filled(self.remedy)}".strip()

    def filled(self, template: str) -> str:
        """A problem or a remedy with the facts of this error.

        A fact that ends a sentence, such as "did you mean 'user'?", is not followed by a full stop.
        """
        return _SECOND_STOP.sub("", template.format(**self.facts()))

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are pickled between processes (Spark workers, pools), which keyword-only fields do not support.
        return (_rebuild, (type(self), self.facts()))


def _rebuild(kind: type[HeadwaterError], facts: dict[str, Any]) -> HeadwaterError:
    return kind(**facts)


def kind_of(name: str) -> type[HeadwaterError] | None:
    """The class of this name, if its module has been imported."""
    return _KINDS.get(name)


# Any: JSON from another process.
def error_of(body: Any) -> HeadwaterError | None:
    """Rebuild an error of another process from its `error`, `branch`, `facts` and `message`.

    If the module of its class has not been imported, it is an error of the class's branch; None if that is unknown too.
    """
    if not isinstance(body, dict):
        return None
    kind, branch = kind_of(str(body.get("error"))), kind_of(str(body.get("branch")))
    facts, text = body.get("facts", {}), str(body.get("message") or body.get("error"))
    for make in (kind, branch and partial(_branch_error, branch, text)):
        try:
            if make is not None:
                return make(**facts)
        except TypeError:  # another release has other facts
            continue
    return None


def _branch_error(branch: type[HeadwaterError], text: str, **facts: Any) -> HeadwaterError:
    """An error of a branch, with the message of the process that raised it."""
    known = {field.name: facts[field.name] for field in fields(branch) if field.name in facts}
    made = {
        "__str__": lambda _: text,
        "__reduce__": lambda _: (partial(_branch_error, branch, text, **known), ()),
        "__module__": "elsewhere",  # so that it does not replace the branch itself in `_KINDS`
    }
    error: HeadwaterError = type(branch.__name__, (branch,), made)(**known)
    return error


# -- the call is wrong ------------------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class UsageError(HeadwaterError, ValueError):
    """The call is wrong; the same call will fail again."""

    exit_code: ClassVar[int] = 2
    http_status: ClassVar[int] = 400


@dataclass(eq=False, kw_only=True)
class ArgumentInvalid(UsageError):
    """An argument has an invalid value."""

    name: str
    value: Any
    expected: str
    problem = "`{name}` is {value!r}."
    remedy = "Give {expected}."


@dataclass(eq=False, kw_only=True)
class NotPossible(UsageError):
    """The request cannot be done in this form."""

    why: str
    instead: str
    problem = "{why}."
    remedy = "{instead}."


@dataclass(eq=False, kw_only=True)
class RowInvalid(UsageError):
    """A row does not fit the topic's schema."""

    topic: str
    row: int
    column: str
    why: str
    problem = "Row {row} does not fit topic {topic!r}: column {column!r} {why}."
    remedy = "Correct the row, or change the schema with `headwater topic alter`. Nothing of this call was appended."


@dataclass(eq=False, kw_only=True)
class SchemaInvalid(UsageError):
    """A schema is not valid."""

    schema: str
    why: str
    problem = "The schema {schema} cannot be used: {why}."
    remedy = "Give an Arrow schema, a dataclass, or a mapping such as {{'id': 'int64', 'at': 'timestamp'}}."


@dataclass(eq=False, kw_only=True)
class SchemaConflict(UsageError):
    """A new schema would make existing rows unreadable, or lose a column."""

    topic: str
    column: str
    why: str
    problem = "The schema of topic {topic!r} cannot change so: column {column!r} {why}."
    remedy = "Add nullable columns or widen types; to drop a column, use `force=True`; otherwise create a new topic."


@dataclass(eq=False, kw_only=True)
class ColumnUnknown(UsageError):
    """A reader asked for a column that the topic does not have."""

    topic: str
    column: str
    columns: str
    problem = "Topic {topic!r} has no column {column!r}."
    remedy = "It has: {columns}."


@dataclass(eq=False, kw_only=True)
class ColumnMisfit(UsageError):
    """A column of a DataFrame cannot be written to its topic or sink."""

    target: str
    column: str
    why: str
    problem = "Column {column!r} does not fit {target}: it {why}."
    remedy = "Select, rename or cast it in the DataFrame, or change the other side. Nothing was written."


@dataclass(eq=False, kw_only=True)
class EncodingInvalid(UsageError):
    """Input bytes are not valid in their encoding."""

    encoding: str
    position: str
    why: str
    problem = "The {encoding} at {position} cannot be read: {why}."
    remedy = "Correct the input; what came before it is kept, nothing after it was read."


# -- the thing named does not exist -----------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class NotFound(HeadwaterError, LookupError):
    """The thing named does not exist."""

    #: A topic, a consumer group, a view: the noun.
    kind: str
    name: str
    #: A further sentence: " Did you mean 'orders'?".
    near: str = ""
    exit_code: ClassVar[int] = 3
    http_status: ClassVar[int] = 404
    problem = "There is no {kind} {name!r}.{near}"
    remedy = "Correct the name, or create it first."

    def __str__(self) -> str:
        remedy = _REMEDIES.get(self.kind, self.remedy) if type(self) is NotFound else self.remedy
        return f"{self.filled(self.problem)} {self.filled(remedy)}".strip()


#: The remedy where a thing of a kind is not found.
_REMEDIES = {
    "alert rule": "List the rules with `headwater alert list`, or add one with `headwater alert set`.",
    "consumer group": "List the groups with `headwater group list`; a group exists from its first member or commit on.",
    "entity": "List the entities with `headwater entity list KIND`; one exists from its first event on.",
    "index": "Correct the path, or let a query write its first batch there.",
    "kind of entities": "List the kinds with `headwater entity list`; one exists from the first `hw.Entities` of it on.",
    "log": "Correct the path, or open it without `create=False` to create a new log there.",
    "partition": "Use a partition that exists, or add some with `headwater topic alter TOPIC --partitions N`.",
    "path": "See /api/openapi.json for the paths that exist.",
    "prepared transaction": "List what is prepared with `Log.prepared()`; it may have been committed or rolled back already.",
    "queue": "List the queues with `headwater queue list`, or create it with `headwater queue create {name}`.",
    "queue group": "List the groups with `headwater queue stats`; the first take as a group creates it.",
    "query": "List the queries with `headwater query list`.",
    "search": "Begin the search again: one that is not used for ten minutes is forgotten.",
    "staged rows": "Stage the rows again, and commit what that returns; Spark does so when it repeats the batch.",
    "token": "List the tokens with `headwater token list`.",
    "topic": "Create it with `headwater topic create {name}`, or list the topics with `headwater topic list`.",
    "view": "List the views with `headwater view list`; a view is there from its app's first run on.",
}


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence with the most similar known name; empty if none is similar.

    >>> did_you_mean("order", ["orders", "cards"])
    " Did you mean 'orders'?"
    """
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def sentence(text: str) -> str:
    """A text of another library as a sentence: it ends with a full stop, unless it ends a sentence already.

    >>> sentence("no such table"), sentence("Did you mean 'orders'?"), sentence("It ended.")
    ('no such table.', "Did you mean 'orders'?", 'It ended.')
    """
    text = text.rstrip()
    return text if text.endswith((".", "?", "!")) else f"{text}."


# -- the caller may not do this ---------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class NotAllowed(HeadwaterError):
    """The caller may not do this."""

    exit_code: ClassVar[int] = 4
    http_status: ClassVar[int] = 403


# -- another process or caller was first ------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class Conflict(HeadwaterError):
    """Another process or caller was first; read again and decide again."""

    exit_code: ClassVar[int] = 5
    http_status: ClassVar[int] = 409


@dataclass(eq=False, kw_only=True)
class InUse(Conflict):
    """An app, a port, a folder or a topic is used by another process or call."""

    what: str
    by: str
    instead: str
    problem = "{what} is used by {by} already."
    remedy = "{instead}."


# -- the log cannot serve this now ------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class LogError(HeadwaterError):
    """The log cannot serve this now."""


@dataclass(eq=False, kw_only=True)
class Overdue(LogError):
    """An operation took longer than the caller would wait."""

    what: str
    seconds: float
    instead: str
    problem = "{what} within {seconds} seconds."
    remedy = "{instead}."


@dataclass(eq=False, kw_only=True)
class Closed(LogError):
    """The log, producer or consumer has been closed."""

    what: str
    http_status: ClassVar[int] = 503
    problem = "This {what} is closed."
    remedy = "Open a new one."


# -- the machine or the bytes are at fault ----------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class StorageError(HeadwaterError):
    """The machine or the bytes are at fault."""


@dataclass(eq=False, kw_only=True)
class Locked(StorageError):
    """Another process holds a lock for longer than the caller would wait."""

    what: str
    waited: float
    holder: str = "another process"
    http_status: ClassVar[int] = 503
    problem = "{what} was held by {holder} for {waited:.1f} s."
    remedy = (
        "Try again; if it is still held, continue a stopped process with `kill -CONT`, or end it: a dead process holds"
        " no lock. Calls wait for `lock_seconds_max` at most."
    )


@dataclass(eq=False, kw_only=True)
class FilesExhausted(StorageError):
    """This process, or the machine, may not open more files."""

    path: str
    limit: int
    problem = "{path} cannot be opened: this process has reached its limit of {limit} open files."
    remedy = "Raise the limit with `ulimit -n`, lower `open_partitions_max`, or use fewer topics in one process."


# -- a query cannot continue ------------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class QueryError(HeadwaterError):
    """A streaming query cannot continue as it is."""
