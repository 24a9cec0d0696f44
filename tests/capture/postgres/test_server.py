"""A server that stops, deletes what a slot needs, or is set up without logical replication."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headwater.capture import SourceInvalid, SourceReplaced
from tests.capture.postgres.shop import PASSWORD_ENV, Shop
from tests.servers import PeerUnavailable, postgres_server

GUARD = {"max_slot_wal_keep_size": "1MB", "max_wal_size": "32MB"}


@pytest.mark.process
def test_a_capture_survives_a_restart_and_refuses_a_lost_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        running = postgres_server(settings=GUARD)
        server = running.__enter__()
    except PeerUnavailable as error:
        pytest.skip(str(error))
    try:
        monkeypatch.setenv(PASSWORD_ENV, server.password)
        shop = Shop(server, tmp_path)
        shop.sql("CREATE TABLE orders (id int PRIMARY KEY)")
        shop.create()
        with shop.open() as capture:
            capture.catch_up()
            shop.sql("INSERT INTO orders VALUES (1)")
            shop.connection.close()
            # A server that stops waits for its replicas: a capture that runs answers, also without any change.
            stop = threading.Event()
            running_capture = threading.Thread(target=capture.run, args=(stop,))
            running_capture.start()
            server.stop(seconds_max=60)
            server.start(settings=GUARD)
            stop.set()
            running_capture.join()
            shop.connect()
            capture.catch_up()
            shop.in_step()
        for _ in range(4):  # four segments of 16 MB without the capture: more than the guard allows
            shop.sql("INSERT INTO orders SELECT coalesce(max(id), 0) + 1 FROM orders")
            shop.sql("SELECT pg_switch_wal()")
        shop.sql("CHECKPOINT")
        before = shop.rows()
        with pytest.raises(SourceReplaced, match="is lost"), shop.open() as capture:
            capture.catch_up()
        assert shop.rows() == before
        shop.close()
        server.stop()
        server.start(settings={"wal_level": "replica"})
        again = Shop(server, tmp_path / "again")
        again.sql("CREATE TABLE orders (id int PRIMARY KEY)")
        with pytest.raises(SourceInvalid, match="ALTER SYSTEM SET wal_level = logical"):
            again.create()
        again.close()
    finally:
        running.__exit__(None, None, None)
