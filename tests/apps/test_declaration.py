"""Apps as people declare them: what is read and written is checked before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.apps.app_file import load_app
from headwater.apps.errors import AppFileFailed, AppFileInvalid, DeclarationInvalid
from headwater.apps.graph import ordered, picture
from headwater.apps.home import DeclaredQuery
from headwater.errors import ArgumentInvalid, NotFound
from headwater.log.errors import NameInvalid


@pytest.fixture
def app(tmp_path: Path) -> hw.App:
    return hw.App("shop", log=tmp_path / "data")


def same(rows: Any) -> Any:
    return rows


def test_arguments_name_what_a_query_reads(app: hw.App) -> None:
    @app.topic(key="user", inputs={"archive": "orders.2025"})
    def joined(orders: Any, users: hw.Table, archive: Any) -> Any:
        return orders, users, archive

    (query,) = app.queries
    assert query.reads == ("orders", "users", "orders.2025")
    assert [each.kind for each in query.inputs] == ["rows", "table", "rows"]
    assert (query.output, query.key) == ("joined", ("user",))
    assert query.where.startswith("test_declaration.py:")


def test_a_decorator_without_arguments_declares_a_topic(app: hw.App) -> None:
    @app.topic
    def copied(orders: Any) -> Any:
        return orders

    assert [query.kind for query in app.queries] == ["topic"]


def test_a_store_of_another_kind_is_refused() -> None:
    with pytest.raises(ArgumentInvalid, match="postgresql"):
        hw.App("shared", views="mysql://somewhere")


def test_two_outputs_of_one_name_are_refused(app: hw.App) -> None:
    app.topic(same)
    with pytest.raises(DeclarationInvalid, match="'same' is declared twice: at test_declaration"):
        app.view(key="id")(same)


def test_an_input_and_an_output_of_one_name_are_refused(app: hw.App) -> None:
    app.input("same", {"id": "int64"})
    with pytest.raises(DeclarationInvalid):
        app.topic(same)


@pytest.mark.parametrize(
    ("declare", "why"),
    [
        (lambda app: app.view()(same), "a view needs the columns that tell its rows apart"),
        (lambda app: app.sink()(same), "it names no sink"),
        (lambda app: app.topic(lambda: None), "it has no arguments"),
        (lambda app: app.topic(name="n")(lambda *rows: rows), "has no name that could say what to read"),
        (lambda app: app.topic(name="n", inputs={"x": "y"})(same), "which the function has no argument for"),
    ],
)
def test_a_declaration_that_cannot_work_says_why(app: hw.App, declare: Any, why: str) -> None:
    with pytest.raises((DeclarationInvalid, NameInvalid)) as caught:
        declare(app)
    assert why in str(caught.value) or isinstance(caught.value, NameInvalid)


def test_periods_are_checked_when_declared(app: hw.App) -> None:
    with pytest.raises(ArgumentInvalid):
        app.topic(trigger="soon")(same)


def test_an_unknown_input_is_told_with_the_nearest_name(app: hw.App) -> None:
    @app.topic
    def paid(paymnts: Any) -> Any:
        return paymnts

    with pytest.raises(DeclarationInvalid, match=r"reads 'paymnts'.*Did you mean 'payments'\?"):
        ordered(app.name, app.queries, topics=["payments", "users"])
    with pytest.raises(DeclarationInvalid, match="headwater topic create paymnts"):
        ordered(app.name, app.queries, topics=["users"])


def test_queries_come_after_those_they_read_from(app: hw.App) -> None:
    @app.topic
    def third(second: Any) -> Any: ...

    @app.view(key="id")
    def second(first: Any, orders: Any) -> Any: ...

    @app.topic
    def first(orders: Any) -> Any: ...

    assert [query.name for query in ordered(app.name, app.queries, topics=["orders"])] == ["first", "second", "third"]


def test_a_circle_is_told_as_such(app: hw.App) -> None:
    @app.topic
    def one(two: Any) -> Any: ...

    @app.topic
    def two(one: Any) -> Any: ...

    with pytest.raises(DeclarationInvalid, match=r"one → two|two → one"):
        ordered(app.name, app.queries, topics=[])


def test_a_query_is_found_by_its_name_or_nearly(app: hw.App) -> None:
    app.topic(same)
    assert app.query("same").name == "same"
    with pytest.raises(NotFound, match="Did you mean 'same'"):
        app.query("some")


def test_the_picture_has_every_topic_and_query_once(app: hw.App) -> None:
    @app.view(key="id")
    def spend(orders: Any) -> Any: ...

    @app.topic
    def big(spend: Any, orders: Any) -> Any: ...

    graph = picture(app.name, [DeclaredQuery.of(query) for query in app.queries], labels={"orders": "id, amount"})
    assert {(node.name, node.kind) for node in graph.nodes} == {
        ("orders", "topic"),
        ("spend", "view"),
        ("big", "topic"),
        ("spend()", "query"),
        ("big()", "query"),
    }
    assert ("spend", "big()") in graph.edges
    assert ("spend()", "spend") in graph.edges


@pytest.mark.parametrize("name", ["", "a/b", "../up", ".hidden"])
def test_an_app_has_a_name_that_is_safe_in_a_folder(name: str) -> None:
    with pytest.raises(NameInvalid):
        hw.App(name)


# -- files ------------------------------------------------------------------------------------------------------------


def written(folder: Path, text: str) -> str:
    path = folder / "program.py"
    path.write_text(text)
    return str(path)


def test_a_file_gives_its_app(tmp_path: Path) -> None:
    path = written(tmp_path, "import headwater as hw\napp = hw.App('one')\n")
    assert load_app(path).name == "one"
    assert load_app(f"{path}:app").name == "one"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = 1\n", "it makes no app"),
        ("import nowhere_at_all\n", "line 1: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("a = 1\nraise ValueError('no')\n", "line 2: ValueError: no"),
        ("def broken(:\n", "line 1: SyntaxError"),
        ("import sys\nsys.exit(3)\n", "line 2: SystemExit: 3"),
        ("import headwater as hw\na = hw.App('a')\nb = hw.App('b')\n", "it makes 2 apps"),
    ],
)
def test_a_file_that_cannot_be_run_says_why(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises((AppFileFailed, AppFileInvalid)) as caught:
        load_app(written(tmp_path, text))
    assert why in str(caught.value)


@pytest.mark.parametrize("path", ["missing.py", "notes.txt"])
def test_what_is_no_python_file_is_refused(path: str) -> None:
    with pytest.raises(AppFileInvalid, match="there is no such Python file"):
        load_app(path)


def test_of_several_apps_one_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "import headwater as hw\na = hw.App('a')\nb = hw.App('b')\n")
    assert load_app(f"{path}:b").name == "b"
    with pytest.raises(AppFileInvalid, match="it has no app called 'c'"):
        load_app(f"{path}:c")
