"""Asking a running stream: answers are what the rows so far amount to, at the offsets that they name."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

import headwater as hw
from headwater import EventTime
from headwater.apps.home import Home
from headwater.cli.app import build
from headwater.engine.questions import ANSWERS, Question, merged_parts, unpacked
from headwater.engine.side_outputs import read_side_output
from headwater.engine.state_folder import LocalFolder
from headwater.engine.step import PartitionEngine
from headwater.errors import ArgumentInvalid, NotFound, NotPossible, Overdue
from headwater.operators import (
    AggregateTable,
    Hopping,
    Process,
    Rolling,
    Session,
    Sliding,
    TopN,
    Tumbling,
    agg,
)
from headwater.services import app_services
from headwater.testing import AppTest
from tests.apps.fixtures import SECONDS_MAX, running
from tests.laws import costly
from tests.operators.batches import _placed
from tests.operators.test_windows import COMPUTE, SECOND, Row, arrivals, table

SCHEMA = {"card": "int64", "amount": "int64", "at": "timestamp"}


# -- the operator's side, without Spark -------------------------------------------------------------------------------


COMMON: dict[str, Any] = {"time": EventTime("at", future_max=None), "by": "user", "name": "totals"}
KEYED = EventTime("at", delay=500, future_max=None, scope="key")


def asked(
    folder: Path, rows: list[Row], questions: list[Question], partitions: int, *, by: Any = "user", operator: Any = None
) -> list[dict[str, Any]]:
    """What an operator answers after these rows, put together from all partitions."""
    operator = operator or Tumbling(
        size=20, time=hw.EventTime("at", future_max=None), by=by, compute=COMPUTE, name="totals"
    )
    found = table(rows, by=by)
    contract = replace(operator.contract(found.schema), partitions=partitions)
    for slot, part in enumerate(_placed(found, contract)):
        engine = PartitionEngine(contract, LocalFolder(folder / "query" / "totals"), slot=slot)
        engine.run(part, batch=0, processing_us=None, broadcast={})
        engine.answer(questions, batch=0)
    parts = [row for one in read_side_output(folder, "query", "totals", ANSWERS, batch=0) for row in one.to_pylist()]
    return [merged_parts(one, [part for part in parts if part["question"] == one.id]) for one in questions]


def question(**settings: Any) -> Question:
    return Question(id=json.dumps(settings), query="spend", **settings)


@costly(3)
@given(batches=arrivals(late_by=7), partitions=st.integers(1, 3))
def test_answers_are_what_the_rows_amount_to(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Row]], partitions: int
) -> None:
    rows = [row for batch in batches for row in batch]
    questions = [
        question(),
        question(key={"": "a"}),
        question(key={"user": "nobody"}),
        question(compute={"n": ("count", None), "all": ("sum", "total"), "most": ("max", "total")}),
        question(key={"user": "a"}, compute={"n": ("count", None), "all": ("sum", "total")}),
    ]
    every, one, nobody, over_all, over_one = asked(tmp_path_factory.mktemp("asked"), rows, questions, partitions)
    totals: dict[tuple[str, int], int] = defaultdict(int)
    for user, amount, at in rows:
        totals[user, at // 20 * 20 * SECOND] += amount

    def shown(answer: dict[str, Any]) -> dict[tuple[str, int], int]:
        held = [] if answer["rows"] is None else unpacked(answer["rows"]).to_pylist()
        return {(row["user"], round(row["window_start"].timestamp() * SECOND)): row["total"] for row in held}

    of_a = {place: total for place, total in totals.items() if place[0] == "a"}
    assert shown(every) == totals
    assert shown(one) == of_a
    assert shown(nobody) == {}
    assert unpacked(over_all["rows"]).to_pylist() == [
        {"n": len(totals), "all": sum(totals.values()), "most": max(totals.values())}
    ]
    assert unpacked(over_one["rows"]).to_pylist() == [{"n": len(of_a), "all": sum(of_a.values()) if of_a else None}]
    assert all(answer["complete"] and answer["error"] is None for answer in (every, one, nobody, over_all, over_one))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"key": {"card": 1}}, "no column 'card'"),
        ({"key": {"user": {"a": 1}}}, "a value of type string"),
        ({"compute": {"x": ("median", "total")}}, "one of count"),
        ({"compute": {"x": ("sum", None)}}, "with a column"),
        ({"compute": {"x": ("sum", "amount")}}, "no column 'amount'"),
        ({"compute": {"x": ("sum", "user")}}, "a number"),
    ],
)
def test_a_question_that_makes_no_sense_gets_an_error_and_the_others_their_answers(
    tmp_path: Path, settings: dict[str, Any], says: str
) -> None:
    wrong, right = asked(tmp_path, [("a", 1, 5), ("b", 2, 5)], [question(**settings), question()], 2)
    assert says in wrong["error"]
    assert right["error"] is None
    assert unpacked(right["rows"]).num_rows == 2


def test_an_answer_has_no_more_rows_than_it_may(tmp_path: Path) -> None:
    rows = [("a", 1, at * 20) for at in range(30)]
    few, enough = asked(tmp_path, rows, [question(rows_max=7), question(rows_max=30)], 2)
    assert (unpacked(few["rows"]).num_rows, few["complete"]) == (7, False)
    assert (unpacked(enough["rows"]).num_rows, enough["complete"]) == (30, True)


def test_an_operator_without_a_key_has_one_row_and_shows_no_key(tmp_path: Path) -> None:
    (answer,) = asked(tmp_path, [("a", 1, 5), ("b", 2, 5)], [question()], 1, by=())
    (row,) = unpacked(answer["rows"]).to_pylist()
    assert row["total"] == 3
    assert not [name for name in row if name.startswith("_")]


WAITING = [("a", 1), ("a", 3), ("b", 3), ("b", 4)]


@pytest.mark.parametrize(
    ("operator", "wanted"),
    [
        (Tumbling(size=20, compute=COMPUTE, **{**COMMON, "time": KEYED}), [("a", 3), ("b", 3), ("b", 4)]),
        (
            Tumbling(size=20, emit="changes", completeness=True, compute=COMPUTE, **COMMON),
            [("a", 3), ("b", 3), ("b", 4)],
        ),
        (Hopping(size=300, every=150, compute=COMPUTE, **COMMON), [("a", 3), ("a", 3), ("b", 3), ("b", 4), ("b", 7)]),
        (Sliding(size=20, windows="trailing", compute=COMPUTE, **COMMON), WAITING),
        (Session(gap=10, compute=COMPUTE, **COMMON), [("a", 3), ("b", 3), ("b", 4)]),
        (Rolling(period=20, compute=COMPUTE, **COMMON), WAITING),
        (Rolling(period=20, compute=COMPUTE, **{**COMMON, "time": KEYED}), WAITING),
    ],
    ids=lambda one: type(one).__name__,
)
def test_operators_tell_results_and_not_how_they_keep_them(tmp_path: Path, operator: Any, wanted: list[Any]) -> None:
    rows = [("a", 1, 5), ("a", 2, 9), ("b", 3, 5), ("b", 4, 200)]
    (answer,) = asked(tmp_path, rows, [question()], 2, operator=operator)
    assert answer["error"] is None
    found = unpacked(answer["rows"]).to_pylist()
    assert sorted((row["user"], row["total"]) for row in found) == wanted
    assert not [name for name in found[0] if "__" in name or name.startswith("_of_")]


# -- in a running app -------------------------------------------------------------------------------------------------


def shop(folder: Path) -> hw.App:
    """Queries that keep state in a table, behind one another, in windows and in a step of one's own."""
    app = hw.App("shop", log=folder / "data")
    app.input("payments", SCHEMA, key="card", time="at", partitions=2)

    @app.view(key="rank", ask=True)
    def largest(payments: DataFrame) -> DataFrame:
        compute = {"total": agg.sum("amount"), "n": agg.count()}
        totals = payments.transform(AggregateTable(by="card", compute=compute, name="totals"))
        return totals.transform(TopN(n=2, order=[("total", "desc")], key="card", name="ranks"))

    @app.topic(key="card", ask=True)
    def minutes(payments: DataFrame) -> DataFrame:
        compute = {"total": agg.sum("amount")}
        return payments.transform(Tumbling(size="1 minute", time="at", by="card", compute=compute, name="open"))

    @app.topic(ask=True)
    def latest(payments: DataFrame) -> DataFrame:
        def last(state: Any, rows: Any, time: Any) -> Any:  # noqa: ARG001
            both = rows.select(["_key", "amount"]).group_by("_key").aggregate([("amount", "max")])
            found = both.rename_columns(["_key", "most"])
            return found, found

        shape = {"most": "int64"}
        return payments.transform(Process(step=last, by="card", state=shape, output={"card": "int64", **shape}))

    return app


def test_a_running_app_answers_of_a_key_of_all_and_over_all(spark: SparkSession, tmp_path: Path) -> None:
    app = shop(tmp_path)
    with AppTest(app, spark=spark) as test:
        rows = [{"card": n % 5, "amount": n, "at": test.now + timedelta(seconds=n)} for n in range(50)]
        test.feed("payments", rows)
        test.drain()
        totals: dict[str, Any] = {"operator": "totals", "seconds": 60}
        answer = app.ask("largest", key=3, **totals)
        assert answer.rows == [{"card": 3, "total": sum(range(3, 50, 5)), "n": 10}]
        assert sum(answer.offsets["payments"].values()) == 50
        everything = app.ask("largest", **totals)
        assert {row["card"]: row["n"] for row in everything.rows} == dict.fromkeys(range(5), 10)
        assert everything.batch > answer.batch  # no row came in between: the question began a batch
        over_all = app.ask("largest", compute={"cards": "count", "spent": ("sum", "total")}, **totals)
        assert over_all.rows == [{"cards": 5, "spent": sum(range(50))}]
        ranks = app.ask("largest", seconds=60)  # of the last operator, unless another is named
        assert [(row["card"], row["rank"]) for row in ranks.rows] == [(4, 1), (3, 2)]
        (minute,) = app.ask("minutes", key={"card": 3}, seconds=60).rows
        assert (minute["window_start"], minute["total"]) == (test.now, sum(range(3, 50, 5)))
        assert app.ask("latest", key=4, seconds=60).rows == [{"card": 4, "most": 49}]
        with pytest.raises(NotPossible, match="there are totals"):
            app.ask("largest", operator="sums", seconds=60)
        bad = {"id": "bad", "query": "largest", "operator": None, "compute": None, "rows_max": None}
        test.feed(
            "shop.questions", [{**bad, "key": "{card"}, {**bad, "key": "[1]"}, {**bad, "key": None, "query": "?"}]
        )
        # The stream goes on, the view is right, and each question was answered once.
        test.feed("payments", [{"card": 3, "amount": 1000, "at": test.now}])
        test.drain()
        assert app.ask("largest", key=3, **totals).rows[0]["n"] == 11
        found = test.views["largest"].get(rank=1)
        assert found is not None
        assert found["n"] == 11
        answers = test.rows("shop.answers")
        good = [row for row in answers if row["question"] != "bad"]
        assert len({row["question"] for row in good}) == len(good) == len(test.rows("shop.questions")) - 3
        assert [row["error"][:27] for row in answers if row["question"] == "bad"] == ["the question cannot be read"] * 2


def kills_once(marker: Path) -> Any:
    """A step that counts rows, and whose worker dies the first time that a question waits for it."""

    def count(state: Any, rows: Any, time: Any) -> Any:  # noqa: ARG001
        import os
        import signal

        from headwater.engine.micro_batch import current_batch, questions_of

        batch = current_batch()
        if batch is not None and marker.exists():
            folder = Path(marker.read_text())
            if questions_of(folder, batch) is not None:
                marker.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        held = dict(zip(state.column("_key").to_pylist(), state.column("n").to_pylist(), strict=True))
        for key in rows.column("_key").to_pylist():
            held[key] = held.get(key, 0) + 1
        found = pa.table({"_key": pa.array(list(held), pa.int64()), "n": pa.array(list(held.values()), pa.int64())})
        return found, found

    return count


def test_a_question_whose_worker_was_killed_is_answered_once(spark: SparkSession, tmp_path: Path) -> None:
    app = hw.App("shop", log=tmp_path / "data")
    app.input("payments", SCHEMA, key="card", time="at", partitions=2)
    marker = tmp_path / "kill"

    @app.topic(ask=True)
    def counted(payments: DataFrame) -> DataFrame:
        shape = {"n": "int64"}
        step = kills_once(marker)
        return payments.transform(
            Process(step=step, by="card", state=shape, output={"card": "int64", **shape}, partitions=1, name="counts")
        )

    with running(app, spark) as runner:
        runner.log.append("payments", [{"card": n % 2, "amount": n, "at": None} for n in range(10)])
        assert app.ask("counted", seconds=SECONDS_MAX).complete
        marker.write_text(str(app.home / "state"))
        asked = 1
        while (
            marker.exists()
        ):  # until a row and a question come in one batch: the row may be read before the question is
            runner.log.append("payments", [{"card": 0, "amount": 1, "at": None}])
            answer = app.ask("counted", key=0, seconds=SECONDS_MAX)
            asked += 1
        assert answer.rows == [{"card": 0, "n": sum(answer.offsets["payments"].values()) - 5}]
        assert len(list(runner.log.read("shop.answers").rows())) == asked
        with app_services(Home(app.home)) as services:
            told = services.queries.ask("counted", key={"card": 1}, seconds=SECONDS_MAX)
        assert (told.rows, told.complete, told.operator) == ([{"card": 1, "n": 5}], True, "counts")
        shown = CliRunner().invoke(
            build(), ["--log", str(tmp_path / "data"), "ask", "counted", "-k", "card=1", "--output", "jsonl"]
        )
        assert shown.exit_code == 0, shown.output
        assert json.loads(shown.stdout) == {"card": 1, "n": 5}


def test_what_cannot_be_asked_is_refused_at_once(tmp_path: Path) -> None:
    app = shop(tmp_path)
    app.topic(key="card", name="silent", inputs={"rows": "payments"})(lambda rows: rows)
    with pytest.raises(ArgumentInvalid, match="ask=True"):
        app.ask("silent")
    with pytest.raises(NotFound):
        app.ask("largst")
    with pytest.raises(ArgumentInvalid, match="one of count"):
        app.ask("largest", compute={"x": "median(total)"})
    with pytest.raises(ArgumentInvalid, match="at least 1"):
        app.ask("largest", rows_max=0)


def test_a_question_that_no_runner_answers_is_an_error_in_time(tmp_path: Path) -> None:
    with pytest.raises(Overdue, match="has not answered within"):
        shop(tmp_path).ask("largest", seconds=0.05)
