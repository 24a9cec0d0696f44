"""`headwater check`: mistakes in an app's file are found with their line, and nothing is run or written."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headwater as hw
from tests.cli.conftest import Cli
from tests.shared_session import left_as_it_was

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOP = """
import headwater as hw
from pyspark.sql import DataFrame, functions as F

app = hw.App("shop", log="./data")
app.input("orders", {"id": "int64", "user": "string", "amount": "int64"}, key="user")
"""
GOOD = f"""{TOP}
@app.topic(key="user")
def large(orders: DataFrame) -> DataFrame:
    return orders.where("amount > 10")

@app.view(key="user")
def spend(large: DataFrame) -> DataFrame:
    return large.groupBy("user").agg(F.sum("amount").alias("total"))
"""


@pytest.fixture(autouse=True)
def leave_no_module(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    yield
    sys.modules.pop("shop", None)


def test_unknown_inputs_are_found_without_spark_each_with_its_line(cli: Cli) -> None:
    Path("shop.py").write_text(GOOD.replace("large(orders:", "large(ordrs:").replace("spend(large:", "spend(larg:"))
    found = cli("check", "shop.py")
    assert found.code == 1
    first, second = found.out.splitlines()
    assert "'large' (shop.py:8)" in first
    assert "it reads 'ordrs', which is no topic of the log and no output of the app. Did you mean 'orders'?" in first
    assert "'spend' (shop.py:12)" in second
    assert not Path("data").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import no_such_module", "line 2: ModuleNotFoundError: No module named 'no_such_module'. Correct it there"),
        ("import redis", "line 2: The package 'redis' is not installed. Run `pip install 'headwater[redis]'`."),
        ("app = ?", "line 2: SyntaxError: invalid syntax"),
    ],
)
def test_an_import_that_fails_is_found_with_its_line(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    Path("shop.py").write_text(f"\n{line}\n{GOOD}")
    found = cli("check", "shop.py")
    assert found.code == 2
    assert found.err.startswith(f"error: shop.py cannot be run: {said}")


def test_an_input_whose_schema_is_wrong_is_found(cli: Cli) -> None:
    Path("shop.py").write_text(GOOD.replace('"int64"', '"int65"', 1))
    found = cli("check", "shop.py", "--json").json
    assert [(one["name"], "int65" in one["message"]) for one in found["problems"]] == [("orders", True)]


def test_without_spark_columns_are_not_checked(cli: Cli) -> None:
    Path("shop.py").write_text(GOOD.replace("amount > 10", "amont > 10"))
    found = cli("check", "shop.py", "--no-spark")
    assert (found.code, found.err) == (
        0,
        "shop: 2 queries. The app has no unknown input; its columns were not checked.\n",
    )


@pytest.mark.parametrize("command", ["check", "run", "dev", "query graph --file"])
def test_where_spark_is_missing_one_sentence_says_what_to_run(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    Path("shop.py").write_text(GOOD)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    found = cli(*command.split(), "shop.py")
    extras = "spark,views" if command in ("run", "dev") else "spark"
    assert found.code == 3
    assert found.err == f"error: The package 'pyspark' is not installed. Run `pip install 'headwater[{extras}]'`.\n"


def test_unknown_columns_are_found_with_their_line_and_nothing_is_written(
    cli: Cli, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda _: None)  # the command would stop the session that it joins
    with hw.open("data") as log:
        log.create("orders", {"id": "int64", "user": "string", "amount": "int64"}, key="user")
    with left_as_it_was(spark):
        Path("shop.py").write_text(GOOD.replace("amount > 10", "amont > 10"))
        found = cli("check", "shop.py")
        assert found.code == 1
        assert "`amont` cannot be resolved" in found.out
        assert "(shop.py:10, in large)" in found.out
        assert "'spend'" not in found.out  # it reads a query that could not be planned
        Path("shop.py").write_text(GOOD)
        assert cli("check", "shop.py").err.endswith("shop: 2 queries. The app can run.\n")
    with hw.open("data") as log:
        assert log.topics() == ["orders"]
