"""The plan of a DataFrame, which lives in the session's JVM; a session of Spark Connect has none in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.errors import NotPossible

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def is_connect(spark: SparkSession) -> bool:
    """Whether a session speaks to Spark by Spark Connect, and so without the JVM."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def require_java(spark: SparkSession, what: str) -> None:
    """Raise on a session of Spark Connect."""
    if is_connect(spark):
        raise NotPossible(
            why=f"{what} needs Spark's own session, and this is one of Spark Connect, which does not let it see its plans and batches",
            instead="Make the session by `headwater.session(master='spark://…')` in a process without `SPARK_REMOTE`, or run the query as an app by `headwater run`. "
            "Over Spark Connect, topics can be read and written: `format('headwater')`",
        )


# Any: a plan of Spark's, which has no Python face.
def analyzed_plan(rows: DataFrame) -> Any:
    """The analyzed plan of a DataFrame."""
    require_java(rows.sparkSession, "A query with Headwater's operators")
    return rows._jdf.queryExecution().analyzed()


# Any: a plan of Spark's, which has no Python face.
def is_shuffled(plan: Any) -> bool:
    """Whether all rows of a plan come out of shuffles that Headwater has put there: then their tasks are always as many."""
    if plan.getClass().getSimpleName() == "RepartitionByExpression":
        return True
    children = plan.children()
    return children.length() > 0 and all(is_shuffled(children.apply(number)) for number in range(children.length()))
