"""Ways in which Spark, or a query's source, fails."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import NotFound, QueryError


@dataclass(eq=False, kw_only=True)
class JavaMissing(NotFound):
    """Spark needs a Java, and there is none that is new enough."""

    kind: str = "Java"
    found: str
    command: str
    problem = "Spark needs {kind} {name} or newer; {found}.{near}"
    remedy = "Run `{command}`, or set JAVA_HOME to one."


@dataclass(eq=False, kw_only=True)
class SourceChanged(QueryError):
    """What a query reads is no longer what its checkpoint was written for."""

    topic: str
    why: str
    problem = "Topic {topic!r} is not what this query has been reading: {why}."
    remedy = "Restart the query if the change is meant; where that is refused, begin with a new checkpoint."
