"""An error begins with the user's own line, whatever Spark has wrapped around it. The texts are Spark's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.apps.failure import Frame, told, trouble_of
from headwater.errors import ArgumentInvalid

TEXTS = Path(__file__).with_name("failures")
JAVA = "org.apache.spark.SparkException: Job aborted\n" + "\tat org.apache.spark.X.y(X.scala:1)\n" * 39


def text(name: str) -> str:
    return (TEXTS / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "details"),
    [
        (
            "udf",
            (
                "/home/ann/app/fraud.py:13, in ratio",
                "    return amount // 0",
                "ZeroDivisionError: integer division or modulo by zero",
            ),
        ),
        (
            "udf_in_foreach_batch",
            (
                "/home/ann/app/fraud.py:13, in ratio",
                "    return amount // 0",
                "ZeroDivisionError: integer division or modulo by zero",
            ),
        ),
        (
            "map_in_arrow",
            ("/home/ann/app/fraud.py:22, in lookup", '    return {"a": 1}["missing"]', "KeyError: 'missing'"),
        ),
        (
            "foreach_batch",
            (
                "/home/ann/app/fraud.py:27, in deliver",
                '    raise ValueError("the sink is\\nnot configured")',
                "ValueError: the sink is",
                "not configured",
            ),
        ),
    ],
)
def test_the_users_own_line_comes_first(name: str, details: tuple[str, ...]) -> None:
    found = told(text(name), kind="StreamingQueryException", java=JAVA)
    assert found.details[:-1] == details
    assert found.line == f"{details[2]} ({details[0]})"
    folded = len(text(name).splitlines()) + 40 - len(details[2:])
    assert found.details[-1] == f"The JVM's trace of {folded} lines is left out; `--verbose` shows it."
    assert text(name).strip() in found.trace
    assert JAVA.strip() in found.trace


def test_a_step_says_where_it_failed_though_spark_forgets_the_cause() -> None:
    found = told(text("step"), kind="StreamingQueryException")
    assert found.details[0] == "/home/ann/app/fraud.py:32, in step"
    assert found.details[1].startswith("StepFailed: Operator 'process-")
    assert "AttributeError" in found.line
    assert "SQLSTATE" not in found.line
    assert 'File "' not in found.line


def test_a_misspelled_column_is_told_without_the_plan_and_with_the_line_that_named_it() -> None:
    frames = [
        Frame("/usr/lib/python3.11/threading.py", 10, "run"),
        Frame("/home/ann/app/fraud.py", 36, "misspelled", 'return rows.select("valeu")'),
        Frame("/home/ann/venv/lib/python3.11/site-packages/pyspark/sql/classic/dataframe.py", 1112, "select"),
    ]
    found = told(text("unknown_column"), kind="AnalysisException", frames=frames)
    assert found.details[0] == "/home/ann/app/fraud.py:36, in misspelled"
    assert found.details[1] == '    return rows.select("valeu")'
    assert "Did you mean one of the following? [`value`, `timestamp`]." in found.details[2]
    assert "Project" not in " ".join(found.details)


def test_an_error_of_java_alone_is_named() -> None:
    assert told(text("java"), kind="NumberFormatException").line == 'NumberFormatException: For input string: "x"'


def fail() -> None:
    raise KeyError("x")


def test_an_error_of_python_alone_shows_its_line() -> None:
    with pytest.raises(KeyError) as caught:
        fail()
    found = trouble_of(caught.value)
    place = f"tests/apps/test_failure.py:{fail.__code__.co_firstlineno + 1}, in fail"
    assert found.details[0].endswith(place)
    assert found.details[1:] == ('    raise KeyError("x")', "KeyError: 'x'")


def test_what_caused_an_error_is_shown_rather_than_what_it_became() -> None:
    try:
        try:
            fail()
        except KeyError as error:
            raise ValueError("the configuration is incomplete") from error
    except ValueError as error:
        found = trouble_of(error)
    assert "in fail" in found.details[0]
    assert "KeyError: 'x'" in found.details
    assert "the configuration is incomplete" in found.trace


def test_our_own_errors_keep_their_words() -> None:
    error = ArgumentInvalid(name="size", value=-1, expected="a duration")
    assert trouble_of(error).line == "ArgumentInvalid: `size` is -1. Give a duration."


def test_an_error_that_cannot_even_be_told_is_named() -> None:
    class Gone(Exception):
        def __str__(self) -> str:
            raise ConnectionError("the JVM is gone")

    assert trouble_of(Gone()).line == "Gone"


def test_a_file_below_the_working_folder_is_called_by_its_short_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(Frame(str(tmp_path / "app" / "fraud.py"), 3, "spend")) == "app/fraud.py:3, in spend"
    assert str(Frame("/elsewhere/fraud.py", 3, "spend")) == "/elsewhere/fraud.py:3, in spend"


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/home/ann/headwater/fraud.py", True),
        ("/home/ann/app/pyspark_jobs/fraud.py", True),
        ("<stdin>", True),
        ("<frozen importlib._bootstrap>", False),
        ("/home/ann/venv/lib/python3.11/site-packages/headwater/views/store.py", False),
        ("/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", False),
        ("/opt/spark/python/lib/py4j-0.10.9-src.zip/py4j/protocol.py", False),
        (str(Path(__file__).parents[2] / "headwater" / "sinks" / "topic.py"), False),
    ],
)
def test_whose_code_it_is(path: str, own: bool) -> None:
    assert Frame(path, 1, "f").is_own is own


LINES = st.sampled_from(
    [
        "Traceback (most recent call last):",
        "[X] failed: Traceback (most recent call last):",
        '  File "/home/ann/app/fraud.py", line 9, in ratio',
        '  File "/x/site-packages/pyspark/a.py", line 1',
        "    return 1 / 0",
        "ValueError: no",
        " SQLSTATE: 38000",
        "\tat a.b.C(D.java:1)",
        "",
        "The above exception was the direct cause of the following exception:",
        "=== Streaming Query ===",
    ]
)


@given(lines=st.lists(LINES | st.text(max_size=30), max_size=20))
def test_any_text_is_told_in_one_line_and_kept_whole(lines: list[str]) -> None:
    given_text = "\n".join(lines)
    found = told(given_text, kind="SomeError")
    assert found.line
    assert "\n" not in found.line
    assert given_text.rstrip() in found.trace or not given_text.strip()
