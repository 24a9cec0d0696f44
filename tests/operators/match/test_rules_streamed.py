"""Rules in a real streaming query: they come, change and go between batches, and a worker is killed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from headwater.log import open as open_log
from headwater.operators import MatchRules
from headwater.operators.keyed import Broadcast
from headwater.operators.sides import read_side
from tests.operators.match.laws import Row
from tests.operators.match.test_streamed import END_OF_TIME, SECOND, TOPIC
from tests.operators.streaming import Stream

RISE = "MEASURES A.id AS a, B.id AS b PATTERN (A B) DEFINE A AS amount < 5, B AS amount > 5"
PAIR = "MEASURES COUNT(*) AS n PATTERN (A{2}) DEFINE A AS kind = 'x'"


def row(number: int, amount: int, kind: str = "y", *, key: str = "k") -> Row:
    return {"key": key, "id": number, "at": number * SECOND, "amount": amount, "price": 1.0, "kind": kind}


def later(number: int) -> list[Row]:
    """Rows in every partition, so that time moves on to this second."""
    return [row(number, 5, key=f"end{key}") for key in range(40)]


def test_rules_change_while_the_stream_runs(spark: SparkSession, tmp_path: Path) -> None:
    rules = Broadcast(log=str(tmp_path / "log"), topic="rules")

    def build(events: DataFrame) -> DataFrame:
        return events.transform(MatchRules(rules=rules, on="at", by="key", ahead=None, name="rules"))

    stream = Stream(spark, tmp_path, build, TOPIC)
    with open_log(tmp_path / "log") as log:
        log.create("rules", schema={"id": "string", "text": "string", "enabled": "bool"}, key="id", durability="os")

    def store(*changes: tuple[str, str | None]) -> None:
        with open_log(tmp_path / "log") as log:
            gone = [{"id": name, "_tombstone": True} for name, text in changes if text is None]
            kept = [{"id": name, "text": text, "enabled": True} for name, text in changes if text is not None]
            log.append("rules", [*kept, *gone])

    # There are no rules yet, when time moves past these rows.
    stream.run({"events": [row(1, 1, "x"), row(2, 9, "x"), *later(3)]})
    stream.run({"events": later(3)})
    store(("rise", RISE), ("bad", "PATTERN (A"))
    stream.run({"events": [row(4, 1, "x"), row(5, 9, "x"), *later(6)]}, kill=True)
    stream.run({"events": later(7)})
    store(("pair", PAIR))
    stream.run({"events": [row(8, 1, "x"), row(9, 9, "x"), *later(10)]}, kill=True)
    stream.run({"events": later(11)})
    store(("rise", None))
    stream.run({"events": [row(12, 1, "x"), row(13, 9, "x"), *later(14)]})
    stream.run({"events": later(END_OF_TIME // SECOND)})
    stream.run({"events": later(END_OF_TIME // SECOND)})
    assert stream.kills == 2
    assert found(stream.rows()) == [
        ("pair", 1, '{"n": 2}'),
        ("pair", 2, '{"n": 2}'),
        ("rise", 1, '{"a": 4, "b": 5}'),
        ("rise", 2, '{"a": 8, "b": 9}'),
    ]
    state = Path(str(spark.conf.get("spark.headwater.state")))
    told = [
        one["rule"]
        for path in state.iterdir()
        for table in read_side(state, path.name, "rules", "refused")
        for one in table.to_pylist()
    ]
    assert set(told) == {"bad"}


def found(rows: Sequence[Row]) -> list[tuple[str, int, str]]:
    return sorted((one["rule"], one["match"], one["measures"]) for one in rows if one["key"] == "k")
