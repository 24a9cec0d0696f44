"""Every way Headwater can fail, as one tree that branches by what the caller can do.

    HeadwaterError
    ├── UsageError            the call is wrong: change the call
    │   ├── SettingInvalid, NameInvalid, TopicInternal, RowInvalid, SchemaInvalid, SchemaConflict, ColumnUnknown, ColumnMisfit, EncodingInvalid, ArgumentInvalid, AggregateInvalid, SketchInvalid, PatternInvalid, JoinUnbounded, TableCompacted, ViewInvalid, ViewKeyInvalid, StatementInvalid
    │   ├── DeclarationInvalid, InputUnknown, GraphCyclic, OutputTaken, AppFileInvalid, SinkMisfit, QuestionRefused, QueryInvalid, MediaTypeUnknown, BodyTooLarge, ServerUnguarded, KeyReused, StatementExceeded, ViewAmbiguous
    ├── NotFound              the thing named does not exist: create it, or mend the name
    │   ├── LogNotFound, TopicNotFound, PartitionNotFound, GroupNotFound, TransactionNotFound, JavaMissing, PackageMissing, TargetNotFound, QueryNotFound, RunnerNotFound, ViewNotFound, TokenNotFound, PathNotFound, AlertNotFound
    ├── NotAllowed            the caller may not do this: ask with a token that may, or from where it is allowed
    │   ├── TokenInvalid, ScopeMissing, HostUnknown, OriginRefused
    ├── Conflict              somebody else was first: read again, then decide again
    │   ├── TopicExists, OffsetConflict, KeyConflict, ProducerFenced, MemberFenced, TransactionFinished, GroupActive, RunnerActive, PortTaken, SinkFenced, ViewConflict, FolderNotEmpty, OutcomeUnknown
    ├── LogError              the log cannot serve this now
    │   ├── OffsetExpired, OffsetAhead, ProducerOverloaded, Closed, ViewBehind, AnswerOverdue, AppSilent, AlertOverdue, ServerUnreachable, TooManyRequests, ServerFull
    ├── QueryError            a streaming query cannot go on as it is: mend the code or the state, and restart it
    │   ├── StateMissing, StateChanged, StateFolderUnknown, StepFailed, StepInvalid, OperatorTwice, SourceChanged, OutputChanged, QueryFailed, SparkLost, RowRefused, SinkRefused, SinkUnavailable, ViewRowInvalid, NumberTooLarge, ChangelogInvalid, SkipImpossible, DemoFailed
    └── StorageError          the machine or the bytes are at fault: repair, free space, or restore
        ├── FrameCorrupt, SegmentMissing, CommitLogCorrupt, FileCorrupt, FilesExhausted, FormatUnknown, DiskFull, ReadOnly, FolderUnsafe, SyncFailed, Locked, RowTooLarge, StoreUnreachable

Each class has typed facts, a `problem` and a `remedy`; both are format strings over the facts.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar


@dataclass(eq=False, kw_only=True)
class HeadwaterError(Exception):
    """Something Headwater was asked for could not be done."""

    problem: ClassVar[str] = "Headwater could not do what it was asked."
    remedy: ClassVar[str] = "Read the facts of the error, and try again."
    exit_code: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__init__(str(self))

    def facts(self) -> dict[str, Any]:
        """What is known of this failure, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __str__(self) -> str:
        facts = self.facts()
        return f"{self.problem.format(**facts)} {self.remedy.format(**facts)}".strip()

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions cross process borders (Spark workers, pools); keyword-only fields need help with that.
        return (_rebuild, (type(self), self.facts()))


def _rebuild(kind: type[HeadwaterError], facts: dict[str, Any]) -> HeadwaterError:
    return kind(**facts)


# -- the call is wrong ------------------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class UsageError(HeadwaterError, ValueError):
    """The call is wrong; the same call will fail again."""

    exit_code: ClassVar[int] = 2


@dataclass(eq=False, kw_only=True)
class ArgumentInvalid(UsageError):
    """An argument has a value that cannot be meant."""

    name: str
    value: Any
    expected: str
    problem = "`{name}` is {value!r}."
    remedy = "Give {expected}."


@dataclass(eq=False, kw_only=True)
class SettingInvalid(UsageError):
    """A setting has a value that cannot work."""

    name: str
    value: Any
    expected: str
    origin: str = "a default"
    problem = "The setting `{name}` is {value!r} (from {origin})."
    remedy = "It takes {expected}."


@dataclass(eq=False, kw_only=True)
class NameInvalid(UsageError):
    """A name would not be safe as the name of a topic, group or producer."""

    kind: str
    name: str
    why: str
    problem = "{name!r} cannot name a {kind}: {why}."
    remedy = "Use 1 to 200 letters, digits, '.', '_' and '-', beginning with a letter or a digit."


@dataclass(eq=False, kw_only=True)
class TopicInternal(UsageError):
    """A topic that the log keeps for itself was to be deleted."""

    topic: str
    problem = "Topic {topic!r} belongs to the log itself, and cannot be deleted."
    remedy = "Set its retention to keep less: `headwater topic alter {topic} --retention '7 days'`."


@dataclass(eq=False, kw_only=True)
class RowInvalid(UsageError):
    """A row does not fit the topic's schema."""

    topic: str
    row: int
    column: str
    why: str
    problem = "Row {row} does not fit topic {topic!r}: column {column!r} {why}."
    remedy = "Mend the row, or change the schema with `headwater topic alter`. Nothing of this call was appended."


@dataclass(eq=False, kw_only=True)
class SchemaInvalid(UsageError):
    """A schema cannot be understood."""

    schema: str
    why: str
    problem = "The schema {schema} cannot be used: {why}."
    remedy = "Give an Arrow schema, a dataclass, or a mapping such as {{'id': 'int64', 'at': 'timestamp'}}."


@dataclass(eq=False, kw_only=True)
class SchemaConflict(UsageError):
    """A new schema would make rows already written unreadable, or lose a column."""

    topic: str
    column: str
    why: str
    problem = "The schema of topic {topic!r} cannot change so: column {column!r} {why}."
    remedy = "Add nullable columns or widen types; to drop a column, say `force=True`; otherwise make a new topic."


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
    """A DataFrame's column cannot be written to the topic that it is meant for."""

    topic: str
    column: str
    why: str
    problem = "Column {column!r} does not fit topic {topic!r}: it {why}."
    remedy = "Select, rename or cast it in the DataFrame, or change the topic's schema. Nothing was written."


@dataclass(eq=False, kw_only=True)
class AggregateInvalid(UsageError):
    """An aggregate cannot be computed over a column of this type."""

    aggregate: str
    argument: str
    kind: str
    expected: str
    problem = "`agg.{aggregate}` cannot be computed over {argument}, which is of type {kind}."
    remedy = "Give it {expected}, or cast the column first."


@dataclass(eq=False, kw_only=True)
class PatternInvalid(UsageError):
    """The text of a pattern cannot be understood, or asks for what cannot be. It says where."""

    line: int
    column: int
    #: The line of the text, and below it a caret under the place.
    place: str
    why: str
    expected: str
    #: "Did you mean fall?", where a name is unknown and another is near.
    meant: str = ""
    problem = "The pattern is wrong in line {line}, column {column}: {why}. {meant}\n{place}"
    remedy = "Give {expected}."

    def __str__(self) -> str:
        facts = self.facts()
        text = f"{self.problem.format(**facts)}\n{self.remedy.format(**facts)}"
        return "\n".join(line.rstrip() for line in text.split("\n"))


@dataclass(eq=False, kw_only=True)
class SketchInvalid(UsageError):
    """A column that should hold sketches holds something else, or sketches that cannot be merged."""

    expected: str
    why: str
    problem = "The column has bytes that are no {expected!r} sketch: {why}."
    remedy = "Give a column that `agg.sketch.{expected}` made, or that Apache DataSketches serialised."


@dataclass(eq=False, kw_only=True)
class JoinUnbounded(UsageError):
    """A join of streams would have to remember every row for ever."""

    operator: str
    bounds: str
    problem = "The join {operator!r} has no bound: it would keep every row of both inputs for ever."
    remedy = "Give {bounds}."


@dataclass(eq=False, kw_only=True)
class TableCompacted(UsageError):
    """A table is asked for the past, but its topic keeps only the present."""

    operator: str
    table: str
    problem = "{operator} asks table {table!r} for what held in the past, but its topic is compacted: only the last row of each key is sure to be there."
    remedy = "Keep the table in a topic with `compact=False` and enough retention, or leave out `as_of` to get what holds now."


@dataclass(eq=False, kw_only=True)
class EncodingInvalid(UsageError):
    """Bytes from outside are not what their encoding says."""

    encoding: str
    position: str
    why: str
    problem = "This is not valid {encoding} at {position}: {why}."
    remedy = "Mend the input; what came before it is kept, nothing after it was read."


@dataclass(eq=False, kw_only=True)
class DeclarationInvalid(UsageError):
    """A query of an app is declared in a way that cannot work."""

    query: str
    where: str
    why: str
    problem = "The query {query!r} ({where}) cannot run as it is declared: {why}."
    remedy = "Mend the declaration; nothing was started."


@dataclass(eq=False, kw_only=True)
class InputUnknown(UsageError):
    """A query reads something that does not exist."""

    query: str
    where: str
    input: str
    near: str = ""
    problem = "The query {query!r} ({where}) reads {input!r}: no topic of the log, no output of the app.{near}"
    remedy = "Mend the name, create it with `headwater topic create {input}`, or declare it with `app.input`."


@dataclass(eq=False, kw_only=True)
class GraphCyclic(UsageError):
    """Queries of an app wait for each other in a circle."""

    app: str
    cycle: str
    problem = "The queries of app {app!r} read each other in a circle: {cycle}."
    remedy = "Take one of these inputs away; a loop needs a topic that is written from outside of the app."


@dataclass(eq=False, kw_only=True)
class OutputTaken(UsageError):
    """Two declarations of an app have one name."""

    name: str
    first: str
    second: str
    problem = "{name!r} is declared twice: at {first} and at {second}."
    remedy = "Give one of them another name, for example with `name=`."


@dataclass(eq=False, kw_only=True)
class QuestionRefused(UsageError):
    """A question to a running query makes no sense to it."""

    query: str
    why: str
    problem = "The query {query!r} cannot answer: {why}"
    remedy = "Ask again with what it names. The stream is not disturbed."


@dataclass(eq=False, kw_only=True)
class AppFileInvalid(UsageError):
    """A file does not hold an app that can be run."""

    path: str
    why: str
    problem = "{path} cannot be run: {why}."
    remedy = "A file to run makes one app, such as `app = headwater.App('fraud', log='./data')`."


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
class QueryInvalid(UsageError):
    """A stored query of `Percolate` cannot be understood, or asks for what the documents do not have."""

    query: str
    position: str
    why: str
    problem = "The query {query!r} cannot be used, at {position}: {why}."
    remedy = "Mend it there; `docs/reference/operators/percolate-queries.md` shows what may be written."


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
    problem = "This SQL was ended: it came to more than {bound}. It was: {statement}."
    remedy = (
        "Ask for less at once, with a WHERE, an aggregate or a LIMIT. Whoever serves may allow more: `headwater serve` and "
        "`headwater run` have `--statement-seconds`, `--statement-memory` and `--answer-rows`."
    )


@dataclass(eq=False, kw_only=True)
class ViewAmbiguous(UsageError):
    """Several apps of a log have a view of this name."""

    view: str
    apps: str
    problem = "Several apps have a view {view!r}: {apps}."
    remedy = (
        "Say whose: `--app` on the command line, `?app=…` over HTTP. `log.{view}` in SQL is the topic of this name."
    )


@dataclass(eq=False, kw_only=True)
class KeyReused(UsageError):
    """An append has the `Idempotency-Key` of another append, and other rows."""

    key: str
    problem = "The `Idempotency-Key` {key!r} was used for another append in the last minutes. Nothing of this one was appended."
    remedy = (
        "Give each append a key of its own, such as a random UUID; only the same append, asked again, has the same."
    )


@dataclass(eq=False, kw_only=True)
class SinkMisfit(UsageError):
    """A query's column could never be written to the sink that it is meant for."""

    sink: str
    column: str
    why: str
    problem = "{sink} cannot take column {column!r}: it {why}."
    remedy = "Select, rename or cast it in the query, or change the other side. Nothing was written."


@dataclass(eq=False, kw_only=True)
class MediaTypeUnknown(UsageError):
    """A request has a body in a form that this path does not take."""

    given: str
    known: str
    problem = "A body of the type {given!r} is not understood here."
    remedy = "Send one of: {known}."


@dataclass(eq=False, kw_only=True)
class BodyTooLarge(UsageError):
    """A request is larger than the server takes."""

    size_max: int
    problem = (
        "The body of this request is larger than {size_max} bytes, as it came or unpacked. Nothing of it was used."
    )
    remedy = "Send it in several parts, or raise the server's `body_bytes_max`."


@dataclass(eq=False, kw_only=True)
class ServerUnguarded(UsageError):
    """A server would be open to other machines without asking who they are."""

    host: str
    problem = "{host} can be reached from other machines, and no token has been made for this log."
    remedy = "Make one with `headwater token create NAME`, or serve on 127.0.0.1."


# -- the thing named does not exist -----------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class NotFound(HeadwaterError, LookupError):
    """The thing named does not exist."""

    exit_code: ClassVar[int] = 3


@dataclass(eq=False, kw_only=True)
class LogNotFound(NotFound):
    """There is no log in this folder."""

    path: str
    problem = "There is no log at {path}."
    remedy = "Mend the path, or open it without `create=False` to make a new log there."


@dataclass(eq=False, kw_only=True)
class TopicNotFound(NotFound):
    """There is no topic of this name."""

    topic: str
    near: str = ""
    problem = "There is no topic {topic!r}.{near}"
    remedy = "Create it with `headwater topic create {topic}`, or list the topics with `headwater topic list`."


@dataclass(eq=False, kw_only=True)
class QueryNotFound(NotFound):
    """An app has no query of this name."""

    query: str
    near: str
    problem = "There is no query {query!r}.{near}"
    remedy = "List the queries with `headwater query list`."


@dataclass(eq=False, kw_only=True)
class RunnerNotFound(NotFound):
    """No process runs this app now."""

    app: str
    problem = "No process runs app {app!r}."
    remedy = "Start it with `headwater run FILE`."


@dataclass(eq=False, kw_only=True)
class PartitionNotFound(NotFound):
    """The topic has fewer partitions than that."""

    topic: str
    partition: int
    partitions: int
    problem = "Topic {topic!r} has {partitions} partitions, numbered from 0; there is no partition {partition}."
    remedy = "Use a partition that exists, or add some with `headwater topic alter {topic} --partitions N`."


@dataclass(eq=False, kw_only=True)
class GroupNotFound(NotFound):
    """There is no consumer group of this name."""

    group: str
    near: str = ""
    problem = "There is no consumer group {group!r}.{near}"
    remedy = "List the groups with `headwater group list`; a group exists from its first member or commit on."


@dataclass(eq=False, kw_only=True)
class TransactionNotFound(NotFound):
    """No prepared transaction has this id."""

    transaction: str
    problem = "There is no prepared transaction {transaction!r}."
    remedy = "List what is prepared with `Log.prepared()`; it may have been committed or rolled back already."


@dataclass(eq=False, kw_only=True)
class JavaMissing(NotFound):
    """Spark needs a Java, and there is none that is new enough."""

    release_min: int
    found: str
    command: str
    problem = "Spark needs Java {release_min} or newer; {found}."
    remedy = "Run `{command}`, or set JAVA_HOME to one."


@dataclass(eq=False, kw_only=True)
class ViewNotFound(NotFound):
    """There is no view of this name."""

    view: str
    near: str = ""
    problem = "There is no view {view!r}{near}."
    remedy = "List the views with `headwater view list`; a view is there from its app's first run on."


@dataclass(eq=False, kw_only=True)
class AlertNotFound(NotFound):
    """There is no alert rule of this name."""

    rule: str
    near: str = ""
    problem = "There is no alert rule {rule!r}.{near}"
    remedy = "List the rules with `headwater alert list`, or add one with `headwater alert set`."


@dataclass(eq=False, kw_only=True)
class TargetNotFound(NotFound):
    """There is no lake or index in this folder."""

    kind: str
    path: str
    problem = "There is no {kind} at {path}."
    remedy = "Mend the path, or let a query write its first batch there."


@dataclass(eq=False, kw_only=True)
class PackageMissing(NotFound):
    """Something needs a package that is not installed, for most people do without it."""

    package: str
    extra: str
    problem = "The package {package!r} is not installed."
    remedy = "Run `pip install 'headwater[{extra}]'`."


@dataclass(eq=False, kw_only=True)
class TokenNotFound(NotFound):
    """There is no token of this name."""

    token: str
    problem = "There is no token {token!r}."
    remedy = "List the tokens with `headwater token list`."


@dataclass(eq=False, kw_only=True)
class PathNotFound(NotFound):
    """A server has nothing at this path."""

    path: str
    problem = "There is nothing at {path}."
    remedy = "See /api/openapi.json for what there is."


# -- the caller may not do this ---------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class NotAllowed(HeadwaterError):
    """The caller may not do this."""

    exit_code: ClassVar[int] = 4


@dataclass(eq=False, kw_only=True)
class TokenInvalid(NotAllowed):
    """A request has no token, or one that is wrong, expired or revoked."""

    why: str = "missing"
    problem = "The token is {why}."
    remedy = "Send `Authorization: Bearer …` with a token that `headwater token create` has made."


@dataclass(eq=False, kw_only=True)
class ScopeMissing(NotAllowed):
    """A token is good, but not for this."""

    token: str
    scope: str
    problem = "Token {token!r} lacks the scope {scope!r}."
    remedy = "Make a token that has it: `headwater token create NAME --scope {scope}`."


@dataclass(eq=False, kw_only=True)
class HostUnknown(NotAllowed):
    """A request names a host that this server is not: a page elsewhere may have pointed its name at this machine."""

    host: str
    problem = "This server is not {host!r}."
    remedy = "Use the address that it was started with, or name this one with `--allow-host`."


@dataclass(eq=False, kw_only=True)
class OriginRefused(NotAllowed):
    """A page of another site has sent this request."""

    origin: str
    problem = "Pages of {origin} may not use this server."
    remedy = "Use the pages that the server itself serves."


# -- somebody else was first ------------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class Conflict(HeadwaterError):
    """Somebody else was first; read again and decide again."""

    exit_code: ClassVar[int] = 5


@dataclass(eq=False, kw_only=True)
class TopicExists(Conflict):
    """A topic of this name exists already, and is not the same."""

    topic: str
    why: str
    problem = "Topic {topic!r} exists already, {why}."
    remedy = "Use it as it is, alter it, or choose another name."


@dataclass(eq=False, kw_only=True)
class OffsetConflict(Conflict):
    """A conditional append found rows that its decision did not know of."""

    topic: str
    partition: int
    expected: int
    actual: int
    problem = "Partition {topic}/{partition} ends at offset {actual}, not at {expected}: somebody appended in between."
    remedy = "Read from {expected}, decide again, and append with `expected_offset={actual}`. Nothing was appended."


@dataclass(eq=False, kw_only=True)
class KeyConflict(Conflict):
    """A conditional append found newer rows of its key."""

    topic: str
    partition: int
    key: str
    expected: int
    actual: int
    problem = "Key {key} in {topic}/{partition} was last written at offset {actual}, after {expected}."
    remedy = "Read the key again, decide again, and append with the newer offset. Nothing was appended."


@dataclass(eq=False, kw_only=True)
class ProducerFenced(Conflict):
    """A newer producer of the same name has taken over."""

    producer: str
    epoch: int
    current: int
    problem = "Producer {producer!r} with epoch {epoch} has been replaced by epoch {current}."
    remedy = "Stop this process: its successor is at work. Nothing of this call was appended."


@dataclass(eq=False, kw_only=True)
class MemberFenced(Conflict):
    """A consumer group has given this member's partitions to others."""

    group: str
    member: str
    why: str
    problem = "Member {member!r} of group {group!r} no longer owns what it commits: {why}."
    remedy = "Poll again to get a new assignment; rows since the last commit will be read again by their new owner."


@dataclass(eq=False, kw_only=True)
class TransactionFinished(Conflict):
    """The transaction has been committed or rolled back already."""

    transaction: str
    outcome: str
    problem = "Transaction {transaction!r} is {outcome}."
    remedy = "Begin a new transaction for further rows."


@dataclass(eq=False, kw_only=True)
class RunnerActive(Conflict):
    """Another process runs this app already."""

    app: str
    holder: str
    problem = "App {app!r} is run by {holder} already."
    remedy = "Stop that one first, or start this one with `--standby`: it takes over when the other ends."


@dataclass(eq=False, kw_only=True)
class PortTaken(Conflict):
    """The port asked for is used by another program."""

    address: str
    problem = "{address} is used by another program."
    remedy = "Choose another port with `--port`, or leave it out: any free port will do."


@dataclass(eq=False, kw_only=True)
class GroupActive(Conflict):
    """A group cannot be moved or deleted while members read for it."""

    group: str
    members: int
    problem = "Group {group!r} has {members} live members."
    remedy = "Stop them first, or use the consumer's own `seek`."


@dataclass(eq=False, kw_only=True)
class OutcomeUnknown(Conflict):
    """An append was asked for again, and nobody knows what became of the first try."""

    why: str
    problem = "Whether these rows were appended is not known: {why}."
    remedy = "Look whether they are there before you send them again; with a producer and a sequence, sending twice does no harm."


@dataclass(eq=False, kw_only=True)
class FolderNotEmpty(Conflict):
    """A new project was to be written where there is something already."""

    folder: str
    found: str
    problem = "There is something in {folder} already: {found}."
    remedy = "Choose another name, or an empty folder. Nothing was written."


@dataclass(eq=False, kw_only=True)
class ViewConflict(Conflict):
    """A view on disk does not fit what it is now declared to be."""

    view: str
    version: int
    why: str
    problem = "View {view!r} (version {version}) is not what it was: {why}."
    remedy = "Rebuild it under a new version with `headwater view rebuild {view}`; until then the old one is served."


@dataclass(eq=False, kw_only=True)
class SinkFenced(Conflict):
    """A newer run of the same query writes to this sink."""

    sink: str
    query: str
    run: str
    current: str
    problem = "Run {run!r} of query {query!r} has been replaced by run {current!r} in {sink}."
    remedy = "Stop this process: its successor is at work. Nothing of this batch was written."


# -- the log cannot serve this now ------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class LogError(HeadwaterError):
    """The log cannot serve this now."""


@dataclass(eq=False, kw_only=True)
class OffsetExpired(LogError):
    """A reader asked for records that retention has already deleted."""

    partition: str
    asked: int
    oldest: int
    problem = "Partition {partition} now begins at offset {oldest}, but a reader asked for {asked}."
    remedy = "Restart the reader from 'earliest', read with `archived=True`, or raise the topic's retention."


@dataclass(eq=False, kw_only=True)
class OffsetAhead(LogError):
    """A reader asked for an offset that the partition has never given out."""

    partition: str
    asked: int
    end: int
    problem = "Partition {partition} ends at offset {end}, but a reader asked for {asked}."
    remedy = "Restart the reader from 'latest' or 'earliest'; the topic may have been deleted and made again."


@dataclass(eq=False, kw_only=True)
class ProducerOverloaded(LogError):
    """A producer reached its limit and was told not to wait any longer."""

    topic: str
    limit: str
    waited: float
    problem = "The producer of {topic!r} waited {waited:.1f} s at its limit ({limit})."
    remedy = "Add consumers, raise the limit, or choose `overload='drop'` if rows may be lost."


@dataclass(eq=False, kw_only=True)
class Closed(LogError):
    """The log, producer or consumer has been closed."""

    what: str
    problem = "This {what} is closed."
    remedy = "Open a new one."


@dataclass(eq=False, kw_only=True)
class AlertOverdue(LogError):
    """The statement of an alert rule takes too long to be asked every few seconds."""

    rule: str
    seconds: float
    problem = "The statement of rule {rule!r} was not done within {seconds} seconds."
    remedy = "Let it ask less: a view that is grouped already, or only the newest rows of a topic (`_appended_at > …`)."


@dataclass(eq=False, kw_only=True)
class AnswerOverdue(LogError):
    """A question to a running query was not answered in time. It stays in its topic, and may still be answered."""

    app: str
    query: str
    seconds: float
    problem = "The query {query!r} of app {app!r} has not answered within {seconds} seconds."
    remedy = "See with `headwater query list` that the app runs and keeps up, and allow more `seconds`."


@dataclass(eq=False, kw_only=True)
class AppSilent(LogError):
    """An app runs, but does not answer, so that nobody can read its views."""

    app: str
    problem = "App {app!r} runs, but does not answer."
    remedy = (
        "See what keeps its process busy, or start it anew. In SQL, `log.NAME` reads the topic of a view meanwhile."
    )


@dataclass(eq=False, kw_only=True)
class ViewBehind(LogError):
    """A view did not come as far as a reader asked for, in the time that it would wait."""

    view: str
    topic: str
    wanted: str
    reached: str
    waited: float
    problem = "View {view!r} reflects {topic!r} up to {reached}, not yet up to {wanted}, after {waited:.1f} s."
    remedy = "Wait longer with `timeout`, read without `at_least`, or see `headwater query list` for what holds it up."


@dataclass(eq=False, kw_only=True)
class ServerUnreachable(LogError):
    """The server of a log does not answer, or not in a way that can be understood."""

    address: str
    why: str
    problem = "The log at {address} cannot be reached: {why}."
    remedy = "Start it with `headwater serve`, or mend the address; whether the last change was made is not known."


@dataclass(eq=False, kw_only=True)
class TooManyRequests(LogError):
    """A client asks more often than the server allows."""

    seconds: float
    problem = "Too many requests; the next one is taken in {seconds:.1f} s."
    remedy = "Send larger batches, or raise the server's `requests_per_second_max`."


@dataclass(eq=False, kw_only=True)
class ServerFull(LogError):
    """The server holds as many open things of a kind as it may."""

    what: str
    count_max: int
    setting: str
    seconds: float
    problem = "The server holds {count_max:,} {what}, as many as it may; try again in {seconds:.1f} s."
    remedy = "End some of them sooner, or raise the server's `{setting}`."


# -- the machine or the bytes are at fault ----------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class StorageError(HeadwaterError):
    """The machine or the bytes are at fault."""


@dataclass(eq=False, kw_only=True)
class FrameCorrupt(StorageError):
    """Bytes that were once acknowledged are no longer what was written."""

    path: str
    position: int
    offset: int
    why: str
    problem = "The frame at byte {position} of {path} (offset {offset}) is damaged: {why}."
    remedy = (
        "Run `headwater log verify`; restore the segment from a copy, or `headwater log repair` sets the bytes aside."
    )


@dataclass(eq=False, kw_only=True)
class SegmentMissing(StorageError):
    """A segment that must exist is gone."""

    partition: str
    offset: int
    problem = "Partition {partition} has lost the segment that held offset {offset}."
    remedy = "Restore the file from a copy, or run `headwater log repair` to continue without these rows."


@dataclass(eq=False, kw_only=True)
class FileCorrupt(StorageError):
    """A small file that describes the log or a topic is damaged or gone. It holds no rows."""

    path: str
    why: str
    problem = "The file {path} cannot be used: {why}."
    remedy = "Restore it from a copy; no row was changed. docs/reference/log-format.md says what stands in it."


@dataclass(eq=False, kw_only=True)
class FilesExhausted(StorageError):
    """This process, or the machine, may not open more files."""

    path: str
    limit: int
    problem = "{path} cannot be opened: this process may have {limit} files open, and has them."
    remedy = "Raise the limit with `ulimit -n`, lower `open_partitions_max`, or use fewer topics in one process."


@dataclass(eq=False, kw_only=True)
class CommitLogCorrupt(StorageError):
    """The record of committed transactions is no longer what was written."""

    path: str
    position: int
    why: str
    problem = (
        "The commit log {path} is damaged at byte {position}: {why}. Which transactions were committed is not known."
    )
    remedy = (
        "Restore the file from a copy, or run `headwater log repair`, which sets it aside and rebuilds it from"
        " `commits.copy` and the partitions. Until then nothing is committed; settled rows can be read."
    )


@dataclass(eq=False, kw_only=True)
class FormatUnknown(StorageError):
    """The files were written by a release with another format."""

    path: str
    found: str
    known: str
    problem = "{path} has format {found}; this release reads {known}."
    remedy = "Use a release of Headwater that knows format {found}. Nothing was changed."


@dataclass(eq=False, kw_only=True)
class DiskFull(StorageError):
    """There is no room for more rows."""

    path: str
    problem = "The disk that holds {path} is full; nothing of this call was appended."
    remedy = "Free some space or lower the retention; the log stays readable, and appends work again by themselves."


@dataclass(eq=False, kw_only=True)
class ReadOnly(StorageError):
    """The folder cannot be written."""

    path: str
    exit_code: ClassVar[int] = 4
    problem = "{path} cannot be written by this user."
    remedy = "Open it with `read_only=True` to read, or change the folder's permissions."


@dataclass(eq=False, kw_only=True)
class FolderUnsafe(StorageError):
    """Another user could read or change rows that are kept in memory."""

    path: str
    why: str
    exit_code: ClassVar[int] = 4
    problem = "{path} is not safe for the rows of a topic in memory: {why}."
    remedy = "Have the folder removed, by its owner or an administrator, and open the topic again: it is made anew."


@dataclass(eq=False, kw_only=True)
class SyncFailed(StorageError):
    """The disk did not confirm that bytes are safe."""

    path: str
    why: str
    problem = "The disk did not confirm the bytes of {path}: {why}."
    remedy = "Check the disk; rows of this call are not acknowledged and may or may not be there after a repair."


@dataclass(eq=False, kw_only=True)
class Locked(StorageError):
    """Somebody else holds a lock for longer than the caller would wait."""

    what: str
    waited: float
    holder: str = "another process"
    problem = "{what} was held by {holder} for {waited:.1f} s."
    remedy = (
        "Try again; if it stays so, let a stopped process go on with `kill -CONT`, or end it: a dead process holds no"
        " lock. Calls wait as long as `lock_seconds_max` says."
    )


@dataclass(eq=False, kw_only=True)
class RowTooLarge(StorageError):
    """One row alone is larger than a frame may be."""

    topic: str
    size: int
    size_max: int
    problem = "A row for topic {topic!r} takes {size} bytes; a frame holds at most {size_max}."
    remedy = "Store the body elsewhere and append its address. Nothing of this call was appended."


@dataclass(eq=False, kw_only=True)
class StoreUnreachable(StorageError):
    """The database that keeps the views does not answer."""

    store: str
    why: str
    problem = "The view store in {store} cannot be used: {why}."
    remedy = "Start it, or mend its address and credentials; views go on by themselves when it is back."


# -- a query cannot go on ---------------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class QueryError(HeadwaterError):
    """A streaming query cannot go on as it is."""


@dataclass(eq=False, kw_only=True)
class SourceChanged(QueryError):
    """What a query reads is no longer what its checkpoint was written for."""

    topic: str
    why: str
    problem = "Topic {topic!r} is not what this query has been reading: {why}."
    remedy = "Restart the query if the change is meant; where that is refused, begin with a new checkpoint."


@dataclass(eq=False, kw_only=True)
class OutputChanged(QueryError):
    """What a query writes no longer fits the topic that its rows went to before."""

    query: str
    topic: str
    why: str
    problem = "The query {query!r} no longer fits its topic {topic!r}: {why}."
    remedy = "Undo the change, or run it as a new version with `headwater replay {query} --as v2`. Nothing was written."


@dataclass(eq=False, kw_only=True)
class QueryFailed(QueryError):
    """A query has stopped with an error."""

    query: str
    why: str
    problem = "The query {query!r} has failed: {why}"
    remedy = "Mend what it says and start again: the batch is done again from the beginning."


@dataclass(eq=False, kw_only=True)
class SparkLost(QueryError):
    """The JVM in which Spark runs has ended: it was killed, or had no memory left."""

    app: str
    problem = "The JVM of app {app!r} is gone."
    remedy = "Start the app again: it goes on from the last batch. A process with `--standby` takes over by itself."


@dataclass(eq=False, kw_only=True)
class DemoFailed(QueryError):
    """The demo has waited in vain, or the process that runs its queries has ended."""

    why: str
    told: str
    path: str
    problem = "The demo cannot go on: {why}. The last that its process printed: {told}"
    remedy = "The rest is in {path}; `headwater demo --dir FOLDER` keeps that file."


@dataclass(eq=False, kw_only=True)
class RowRefused(QueryError):
    """A sink would not take one row of a batch."""

    sink: str
    key: str
    why: str
    problem = "{sink} refused the row with {key}: {why}."
    remedy = (
        "Mend the row or the other side and restart: the batch is done again. Or set such rows aside with "
        "`on_refused='dead_letter'`."
    )


@dataclass(eq=False, kw_only=True)
class SinkRefused(QueryError):
    """A sink will not take any row as things are: a table is gone, or the credentials are wrong."""

    sink: str
    why: str
    what: str
    problem = "{sink} refuses this query: {why}."
    remedy = "{what}, then restart the query: the batch is done again. Nothing of it was written."


@dataclass(eq=False, kw_only=True)
class SinkUnavailable(QueryError):
    """A sink was down for longer than the query would wait."""

    sink: str
    waited: float
    why: str
    problem = "{sink} could not be reached for {waited:.1f} s: {why}."
    remedy = "Start it, or mend its address; the batch is done again when the query restarts, and nothing is lost."


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
class StepFailed(QueryError):
    """The code of an operator's step raised an error."""

    operator: str
    batch: str
    keys: str
    offsets: str
    error: str
    problem = "Operator {operator!r} failed in batch {batch}, on keys such as {keys} ({offsets}): {error}."
    remedy = "Mend the step and restart the query: the batch is done again from the state before it."


@dataclass(eq=False, kw_only=True)
class OperatorTwice(QueryError):
    """Two operators of one query have the same name, and would share their state."""

    operator: str
    problem = "Two operators of this query are called {operator!r}; they would overwrite each other's state."
    remedy = "Give one of them another name: `name=…`."


@dataclass(eq=False, kw_only=True)
class StepInvalid(QueryError):
    """An operator's step returned something that does not fit what it declared."""

    operator: str
    what: str
    why: str
    problem = "The step of operator {operator!r} returned {what} that does not fit: {why}."
    remedy = "Return tables with the declared columns and types."


@dataclass(eq=False, kw_only=True)
class ViewRowInvalid(QueryError):
    """A row of a changelog cannot become a row of its view."""

    view: str
    topic: str
    column: str
    why: str
    problem = "View {view!r} stands still: in its changelog {topic!r}, column {column!r} {why}."
    remedy = "Mend the query that writes it, then rebuild the view with `headwater view rebuild {view}`."


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
class ChangelogInvalid(QueryError):
    """The changes of a table contradict one another, or what the table holds."""

    operator: str
    key: str
    why: str
    problem = "Operator {operator!r} cannot follow its table at {key}: {why}; nothing of this batch was saved."
    remedy = "Keep `_op`, `_partition` and `_offset` in what it reads, and give `key=` where rows replace one another."


@dataclass(eq=False, kw_only=True)
class SkipImpossible(QueryError):
    """After a match the search was to go on at a variable where it cannot."""

    variable: str
    why: str
    problem = "AFTER MATCH SKIP TO {variable} is impossible: {why}."
    remedy = "Skip past the last row or to the next row, or to a variable that every match has behind its first row."
