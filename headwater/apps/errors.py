"""Ways in which an app, or one of its queries, fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headwater.errors import Conflict, LogError, NotFound, QueryError, UsageError


@dataclass(eq=False, kw_only=True)
class DeclarationInvalid(UsageError):
    """A query of an app is declared in a way that cannot work."""

    query: str
    where: str
    why: str
    problem = "The query {query!r} ({where}) cannot run as it is declared: {why}."
    remedy = "Correct the declaration; nothing was started."


@dataclass(eq=False, kw_only=True)
class AppFileInvalid(UsageError):
    """A file does not hold an app that can be run."""

    path: str
    why: str
    problem = "{path} cannot be run: {why}."
    remedy = "A file to run makes one app, such as `app = headwater.App('fraud', log='./data')`."


@dataclass(eq=False, kw_only=True)
class AppFileFailed(UsageError):
    """The code of an app's file raised an error when it was loaded."""

    path: str
    why: str
    problem = "{path} cannot be run: {why}"
    remedy = "Correct it there; nothing was started."


@dataclass(eq=False, kw_only=True)
class RunnerNotFound(NotFound):
    """No process runs this app now."""

    kind: str = "process"
    problem = "No {kind} runs app {name!r}.{near}"
    remedy = "Start it with `headwater run FILE`."


@dataclass(eq=False, kw_only=True)
class NoAppRuns(NotFound):
    """No process runs an app of this log now."""

    kind: str = "process"
    name: str = "app"
    problem = "No {kind} runs an {name} of this log.{near}"
    remedy = "Start one with `headwater run FILE`."


@dataclass(eq=False, kw_only=True)
class AppSilent(LogError):
    """An app runs, but does not answer, so that nothing can read its views."""

    app: str
    http_status: ClassVar[int] = 503
    problem = "App {app!r} runs, but does not answer."
    remedy = "See what keeps its process busy, or restart it. In SQL, `log.NAME` reads the topic of a view meanwhile."


@dataclass(eq=False, kw_only=True)
class OutputChanged(QueryError):
    """What a query writes no longer fits the topic that its rows went to before."""

    query: str
    topic: str
    why: str
    problem = "The query {query!r} no longer fits its topic {topic!r}: {why}."
    remedy = "Undo the change, or run it as a new version with `headwater replay {query} --as v2`. Nothing was written."


@dataclass(eq=False, kw_only=True)
class SparkLost(QueryError):
    """The JVM in which an app's queries run has ended."""

    app: str
    problem = "The JVM of app {app!r} has ended."
    remedy = "Start the app again: it goes on where it was. A process started with `--standby` takes over by itself."


@dataclass(eq=False, kw_only=True)
class AppLeaseLost(Conflict):
    """The process that ran an app has lost its lease: it was silent for too long, or another process has taken over."""

    app: str
    seconds: float
    problem = "The lease of app {app!r} is lost: for {seconds:g} seconds the log took no sign of life of this process."
    remedy = (
        "Another process may run the app now. Start this one with `--standby`; a longer `lease` bridges longer pauses."
    )


@dataclass(eq=False, kw_only=True)
class QueryFailed(QueryError):
    """A query has stopped with an error."""

    query: str
    why: str
    problem = "The query {query!r} has failed: {why}"
    remedy = "Correct it and start again: the query begins with the batch that failed."
