"""Rows from senders of all sorts: compressed, slow, too many at once; and curl as a real client."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from headwater.http import Address, Settings, served
from headwater.log import Log
from headwater.log.remote.wire import ARROW, table_to_bytes
from headwater.schema import cloudevents
from tests.http.conftest import Ask

LINES = {"Content-Type": "application/x-ndjson"}
GZIP = {**LINES, "Content-Encoding": "gzip"}
PATH = "/api/v1/topics/t/rows"


@pytest.fixture
def log(log: Log) -> Log:
    log.create("t", "id int64")
    return log


def test_a_body_in_gzip_is_taken_in_one_part_or_several(log: Log, client: TestClient) -> None:
    members = gzip.compress(b'{"id": 1}\n') + gzip.compress(b'{"id": 2}\n')
    assert client.post(PATH, content=members, headers=GZIP).status_code == 200
    assert [row["id"] for row in log.read("t").rows()] == [1, 2]


def test_a_body_that_grows_too_large_or_is_cut_off_or_is_no_gzip_is_refused(log: Log, client_of: Ask) -> None:
    client = client_of(settings=Settings(body_bytes_max=2_000))
    whole = gzip.compress(b'{"id": 1}\n')
    for body, encoding, status in (
        (gzip.compress(b" " * 2_001), "gzip", 413),
        (gzip.compress(b" " * 100_000_000), "gzip", 413),
        (whole + gzip.compress(b" " * 2_000), "gzip", 413),
        (whole[:-3], "gzip", 400),
        (b"no gzip at all", "gzip", 400),
        (whole, "br", 415),
    ):
        answer = client.post(PATH, content=body[:2_000], headers={**GZIP, "Content-Encoding": encoding})
        assert (answer.status_code, "detail" in answer.json()) == (status, True), (encoding, answer.text)
    assert log.read("t").count() == 0


def test_a_body_that_drips_is_answered_and_cut_off(log: Log) -> None:
    with served(log, Address(port=0), settings=Settings(body_seconds_max=0.05)) as address:
        where = urlsplit(address)
        with socket.create_connection((where.hostname, where.port), timeout=60) as slow:
            head = f"POST {PATH} HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: application/x-ndjson\r\nContent-Length: 1000\r\n\r\n"
            slow.sendall(head.encode() + b'{"id"')
            answer = b""
            while part := slow.recv(65_536):  # until the server has closed the connection
                answer += part
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"BodyTooSlow"' in answer
    assert log.read("t").count() == 0


def test_a_server_with_enough_to_append_says_when_to_come_again(client_of: Ask) -> None:
    client = client_of(settings=Settings(appended_bytes_max=100))
    body = b'{"id": 1}\n' * 20
    assert client.post(PATH, content=body, headers=LINES).status_code == 200  # one body is never too much
    host = client.app.state.service  # type: ignore[attr-defined]
    host.appended_bytes = 1  # another one is being appended
    answer = client.post(PATH, content=body, headers=LINES)
    assert (answer.status_code, answer.json()["error"], answer.headers["retry-after"]) == (429, "ServerFull", "1")
    host.appended_bytes = 0
    client.post(PATH, content=b"junk", headers=LINES)
    assert host.appended_bytes == 0


@pytest.mark.process
def test_curl_appends_rows_in_every_form(log: Log, tmp_path: Path) -> None:
    log.create("events", cloudevents.CLOUDEVENT_SCHEMA)
    (tmp_path / "rows.arrow").write_bytes(table_to_bytes(pa.table({"id": [9]})))
    (tmp_path / "rows.gz").write_bytes(gzip.compress(b'{"id": 8}\n'))
    (tmp_path / "large").write_bytes(b'{"id": 7}\n' * 2_000)
    event = {"specversion": "1.0", "id": "e", "source": "/s", "type": "t"}
    structured, batch = json.dumps(event), json.dumps([event, event])
    with served(log, Address(port=0), settings=Settings(body_bytes_max=10_000)) as address:

        def curl(topic: str, kind: str, data: str, *more: str) -> str:
            words = [
                "curl",
                "--noproxy",
                "*",
                "-sS",
                "-m",
                "60",
                "-o",
                "/dev/null",
                "-w",
                "%{http_code}",
                "-H",
                f"Content-Type: {kind}",
            ]
            words += ["--data-binary", data, *more, f"{address}/api/v1/topics/{topic}/rows"]
            return subprocess.run(words, check=True, capture_output=True, text=True, cwd=tmp_path).stdout

        key = ("-H", "Idempotency-Key: k1")
        headers = [word for name, value in event.items() for word in ("-H", f"ce-{name}: {value}")]
        statuses = [
            curl("t", "application/json", '{"id": 1}'),
            curl("t", "application/json", '[{"id": 2}, {"id": 3}]'),
            curl("t", "application/x-ndjson", '{"id": 4}\n{"id": 5}\n', *key),
            curl("t", "application/x-ndjson", '{"id": 4}\n{"id": 5}\n', *key),
            curl("t", "application/x-ndjson", '{"id": 6}\n', *key),
            curl("t", "application/x-ndjson", "@rows.gz", "-H", "Content-Encoding: gzip"),
            curl("t", ARROW, "@rows.arrow"),
            curl("t", "application/x-ndjson", "@large"),
            curl("t", "text/plain", "hello"),
            curl("events", cloudevents.CONTENT_TYPE, structured),
            curl("events", cloudevents.CONTENT_TYPE_BATCH, batch),
            curl("events", "text/plain", "data", *headers),
        ]
    assert statuses == ["200", "200", "200", "200", "422", "200", "200", "413", "415", "200", "200", "200"]
    assert [row["id"] for row in log.read("t").rows()] == [1, 2, 3, 4, 5, 8, 9]
    assert log.read("events").count() == 4
