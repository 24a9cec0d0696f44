"""A server that stops, deletes what a slot needs, or is set up without logical replication."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headwater.alerts import LogMeasures, Rule
from headwater.alerts.measurements import Sample, measurements
from headwater.capture import CaptureStore, SourceInvalid, SourceReplaced
from headwater.capture.runner import CaptureRunner
from headwater.errors import NotPossible
from headwater.services import Settings, local
from headwater.services.host import Host
from headwater.services.metrics import Metrics
from tests.capture.postgres.shop import PASSWORD_ENV, Shop
from tests.conditions import until
from tests.servers import PeerUnavailable, postgres_server

GUARD = {"max_slot_wal_keep_size": "128MB", "max_wal_size": "1GB"}


def fill_segments(shop: Shop, count: int) -> None:
    for _ in range(count):
        shop.sql("INSERT INTO orders SELECT coalesce(max(id), 0) + 1 FROM orders")
        shop.sql("SELECT pg_switch_wal()")


def check_danger(shop: Shop) -> None:
    """Without its capture a slot is nearly lost soon. That is told wherever the capture is seen; of a paused capture, by the process that would run it."""
    host = Host(log=shop.log, settings=Settings())
    captures = local(host).captures
    for _ in range(10):  # where in a segment the slot begins is not known
        fill_segments(shop, 1)
        if (status := captures.status("shop")).state == "at risk":
            break
    assert status.state == "at risk"
    assert "max_slot_wal_keep_size is 128 MiB" in status.danger
    with pytest.raises(NotPossible, match=r"cannot be paused.*ALTER SYSTEM SET max_slot_wal_keep_size"):
        captures.pause("shop")
    rule = Rule(name="slot", kind="capture_retention", capture="*", threshold=2**40)
    (found,) = measurements(rule, Sample(LogMeasures(shop.log)))
    assert (found.is_over, found.message) == (True, f"Capture 'shop' is at risk: {status.danger}")
    assert 'headwater_capture_at_risk{capture="shop"} 1' in Metrics(host).scrape()
    CaptureStore(shop.log).set_paused("shop", True)
    told: list[str] = []
    runner = CaptureRunner(shop.log, "shop", on_failure=told.append)
    waiting = threading.Thread(target=runner.run)
    waiting.start()
    until(lambda: bool(told))
    runner.request_stop()
    waiting.join()
    assert told == [f"at risk: {status.danger}"]
    captures.resume("shop")


@pytest.mark.process
def test_a_capture_survives_a_restart_warns_of_a_slot_in_danger_and_refuses_a_lost_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        check_danger(shop)
        fill_segments(shop, 4)  # of 16 MB, without the capture: more than the guard allows
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
