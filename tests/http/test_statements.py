"""SQL in processes of its own: within its bounds whatever it does, with the rights of its caller, ending with its server."""

from __future__ import annotations

import io
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.http import Settings, Tokens
from headwater.log import Log
from headwater.services.callers import LOCAL, Caller, Scope, ScopeMissing
from headwater.services.host import ServerFull
from headwater.services.statements import StatementRequest, Statements, run_here
from headwater.units import MIB
from headwater.views.errors import StatementExceeded, StatementInvalid
from headwater.views.sql_parser import is_plain
from headwater.views.statement import Bounds
from tests.conditions import until
from tests.http.conftest import Ask

BOUNDS = Bounds(seconds_max=30.0, memory_max=64 * MIB, threads_max=2)
ENDLESS = "SELECT sum(a.range * b.range) AS n FROM range(3000000) a, range(3000000) b"
HOGS = [
    "SELECT unnest(range(1000000000)) AS n",
    "SELECT repeat('a', 3000000000) AS text",
    "SELECT sum(length(repeat('a', 400000000 + id))) AS n FROM orders",
    "SELECT list(range) FROM range(1000000000)",
]


@pytest.fixture
def log(log: Log) -> Log:
    for name in ("orders", "secret"):
        log.create(name, "id int64")
        log.append(name, [{"id": number} for number in range(3)])
    return log


@pytest.fixture
def statements(log: Log) -> Iterator[Statements]:
    made = Statements(log.home, memory_max=64 * MIB, count_max=1)
    yield made
    made.close()


def ask(statements: Statements, statement: str, **more: object) -> object:
    table = statements.query(StatementRequest(**{"statement": statement, "bounds": BOUNDS, **more}))  # type: ignore[arg-type]
    return table.to_pylist()


# -- in this process --------------------------------------------------------------------------------------------------


names = st.text(alphabet="ab*?", min_size=1, max_size=3)


@given(
    st.text(st.characters(codec="utf-8"), max_size=10),
    st.one_of(st.none(), st.lists(st.one_of(st.integers(), st.text(st.characters(codec="utf-8"))), max_size=3)),
    st.one_of(st.none(), st.lists(names, max_size=2)),
    st.one_of(st.none(), st.lists(st.text(st.characters(codec="utf-8"), max_size=3), max_size=3)),
)
def test_what_is_asked_arrives_as_it_was(
    statement: str, parameters: object, patterns: list[str] | None, texts: list[str] | None
) -> None:
    scopes = None if patterns is None else tuple(Scope(action="read", pattern=pattern) for pattern in patterns)
    caller = None if scopes is None else Caller(name="any", scopes=scopes)
    rows = None if texts is None else pa.table({"text": pa.array(texts, pa.string())})
    asked = StatementRequest(
        statement=statement, parameters=parameters, limit=3, bounds=BOUNDS, caller=caller, app="a", rows=rows
    )
    pipe = io.BytesIO()
    for _ in range(2):
        asked.write(pipe)
    pipe.seek(0)
    assert [StatementRequest.read(pipe), StatementRequest.read(pipe), StatementRequest.read(pipe)] == [
        asked,
        asked,
        None,
    ]


@pytest.mark.parametrize(
    ("statement", "plain"),
    [
        ("SELECT * FROM spend", True),
        ('SELECT count(*) AS n FROM "spend"', True),
        ("SELECT card, sum(total) FROM spend WHERE total > $1 AND NOT (card IN (1, 2)) GROUP BY card", True),
        ("SELECT * FROM spend ORDER BY total DESC LIMIT 20 OFFSET 40", True),
        ("SELECT date_trunc('hour', \"at\") AS t, max(total) FROM spend GROUP BY 1", True),
        ("SELECT repeat('a', 3000000000) FROM spend", False),
        ("SELECT * FROM spend WHERE length(repeat('a', 3000000000)) > 1", False),
        ("SELECT unnest(range(1000000000)) FROM spend", False),
        ("SELECT 1", False),
        ("SELECT * FROM range(10)", False),
        ("SELECT * FROM spend a, spend b", False),
        ("SELECT * FROM spend WHERE card IN (SELECT card FROM spend)", False),
        ("SELECT * FROM (SELECT * FROM spend)", False),
        ("WITH x AS (SELECT * FROM spend) SELECT * FROM x", False),
        ("SELECT * FROM spend UNION ALL SELECT * FROM spend", False),
        ("SELECT card::INTEGER[100000000] FROM spend", False),
        ("SELECT list(card) FROM spend", False),
        ("SELECT rpad('a', 3000000000, 'b') FROM spend", False),
        ("SELECT sum(total) OVER () FROM spend", False),
        ("SELECT * FROM headwater.views", False),
        ("SELECT * FROM spend; SELECT 1", False),
        ("SELEC", False),
    ],
)
def test_a_statement_is_plain_where_it_takes_no_more_than_a_look_at_the_rows(statement: str, plain: bool) -> None:
    assert is_plain(duckdb.connect(), statement) == plain


def test_a_caller_reads_by_a_statement_what_it_may_read(log: Log) -> None:
    caller = Caller(name="reader", scopes=(Scope.parse("read:orders"),))
    asked = StatementRequest(statement="SELECT count(*) AS n FROM orders", bounds=BOUNDS, caller=caller)
    assert run_here(log, asked).to_pylist() == [{"n": 3}]
    for statement in (
        "SELECT * FROM secret",
        "SELECT 1 FROM orders, log.secret",
        "SELECT (SELECT max(id) FROM secret)",
    ):
        with pytest.raises(ScopeMissing):
            run_here(log, StatementRequest(statement=statement, bounds=BOUNDS, caller=caller))
    with pytest.raises(StatementInvalid) as raised:
        run_here(log, StatementRequest(statement="SELECT * FROM secre", bounds=BOUNDS, caller=caller))
    assert "'secret'" not in str(raised.value)


# -- in others --------------------------------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.core
def test_a_statement_takes_no_more_than_it_may(statements: Statements) -> None:
    assert ask(statements, "SELECT sum(id) AS n FROM orders") == [{"n": 3}]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for hog in HOGS:
        with pytest.raises(StatementExceeded, match="64 MiB"):
            ask(statements, hog)
        # The next one finds a process that is as good as new.
        assert ask(statements, "SELECT max(id) AS n FROM log.orders WHERE id < $1", parameters=[2]) == [{"n": 1}]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024  # KiB


@pytest.mark.process
def test_a_statement_ends_when_its_time_is_over(statements: Statements) -> None:
    ask(statements, "SELECT 1")
    with pytest.raises(StatementExceeded, match=r"0\.5 seconds"):
        ask(statements, ENDLESS, bounds=Bounds(seconds_max=0.5, memory_max=64 * MIB, threads_max=2))
    assert ask(statements, "SELECT 2 AS n") == [{"n": 2}]


@pytest.mark.process
def test_a_condition_on_rows_has_the_bounds_of_a_statement(statements: Statements) -> None:
    rows = pa.table({"_offset": [7, 8, 9], "id": [0, 1, 2]})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seconds, condition, bound in (
        (30.0, "length(repeat('a', 3000000000 + id)) > 0", "64 MiB"),
        (0.5, "id in (SELECT range FROM range(1000000000000) WHERE range < 0)", r"0\.5 seconds"),
    ):
        bounds = Bounds(seconds_max=seconds, memory_max=64 * MIB, threads_max=1)
        with pytest.raises(StatementExceeded, match=bound):
            ask(statements, "", where=condition, rows=rows, bounds=bounds)
        # The next one finds a process that is as good as new.
        assert ask(statements, "", where="id > 0", rows=rows) == [{"_offset": 8}, {"_offset": 9}]
        assert ask(statements, "", where="id > 0", rows=rows.slice(0, 0)) == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024  # KiB


@pytest.mark.process
def test_a_result_has_its_bounds_and_an_error_says_what_it_said(statements: Statements) -> None:
    with pytest.raises(StatementExceeded, match="10 rows"):
        ask(statements, "SELECT * FROM range(11)", bounds=Bounds(rows_max=10, memory_max=64 * MIB))
    with pytest.raises(StatementExceeded, match="1 MiB"):
        ask(statements, "SELECT * FROM range(1000000)", bounds=Bounds(bytes_max=MIB, memory_max=64 * MIB))
    with pytest.raises(StatementInvalid, match='"idd" not found') as raised:
        ask(statements, "SELECT idd FROM orders")
    assert '"idd" not found' in str(raised.value.__cause__)  # by which the console finds the place
    caller = Caller(name="reader", scopes=(Scope.parse("read:orders"),))
    with pytest.raises(ScopeMissing, match="read:secret"):
        ask(statements, "SELECT * FROM secret", caller=caller)
    assert ask(statements, "SELECT count(*) AS n FROM secret", caller=LOCAL) == [{"n": 3}]
    with pytest.raises(StatementInvalid):
        ask(statements, "SELECT * FROM read_text('/etc/passwd')")


@pytest.mark.process
def test_rows_that_come_later_are_read_by_the_same_process(statements: Statements, log: Log) -> None:
    assert ask(statements, "SELECT count(*) AS n FROM orders") == [{"n": 3}]
    log.append("orders", [{"id": 3}])
    log.create("fresh", "name string", partitions=3)
    log.append("fresh", [{"name": "ada"}])
    assert ask(statements, "SELECT count(*) AS n FROM orders") == [{"n": 4}]
    assert ask(statements, "SELECT name FROM fresh") == [{"name": "ada"}]


@pytest.mark.process
def test_a_statement_is_stopped_and_no_other_with_it(statements: Statements) -> None:
    ends: list[Callable[[], None]] = []
    begun, failed = threading.Event(), list[str]()

    def run() -> None:
        def stoppable(end: Callable[[], None]) -> None:
            ends.append(end)
            begun.set()

        try:
            statements.query(StatementRequest(statement=ENDLESS, bounds=BOUNDS), stoppable=stoppable)
        except StatementInvalid as error:
            failed.append(error.why)

    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(60)
    # There is one place, and it is taken.
    with pytest.raises(ServerFull):
        ask(statements, "SELECT 1", bounds=Bounds(seconds_max=0.01, memory_max=64 * MIB))
    ends[0]()
    thread.join(60)
    assert failed == ["it was stopped"]
    asked = StatementRequest(statement="SELECT 1 AS n", bounds=BOUNDS)
    assert statements.query(asked, stoppable=lambda _: ends[0]()).to_pylist() == [{"n": 1}]


SERVER = f"""
import sys, threading
from pathlib import Path
from headwater.services.statements import StatementRequest, Statements
from headwater.views.statement import Bounds
statements = Statements(Path(sys.argv[1]), memory_max=64 << 20, count_max=1)
bounds = Bounds(memory_max=64 << 20, threads_max=2)
statements.query(StatementRequest(statement="SELECT 1", bounds=bounds))
print(statements._idle[0].pid, flush=True)
def begun(_): print("begun", flush=True)
statements.query(StatementRequest(statement={ENDLESS!r}, bounds=bounds), stoppable=begun)
"""


@pytest.mark.process
def test_a_process_ends_with_its_server_also_in_the_middle_of_a_statement(log: Log) -> None:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, log.address], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert server.stdout is not None
    child = int(server.stdout.readline())
    assert server.stdout.readline() == "begun\n"
    os.kill(server.pid, signal.SIGKILL)
    server.wait()
    server.stdout.close()
    until(lambda: not _is_running(child), "the process of the statement has ended")


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # a zombie: in a container no process may reap it


@pytest.mark.process
def test_statements_over_http_run_in_other_processes(client_of: Ask, tokens: Tokens) -> None:
    settings = Settings(statement_memory_max=64 * MIB)
    token = tokens.create("reader", ["read:*"])
    client = client_of(confined=True, settings=settings, token=token)
    for hog in HOGS[:2]:
        answer = client.post("/api/v1/sql", json={"sql": hog})
        assert (answer.status_code, answer.json()["error"]) == (422, "StatementExceeded")
    answer = client.post("/api/v1/sql", json={"sql": "SELECT count(*) AS n FROM orders"})
    assert answer.json()["rows"] == [{"n": 3}]
