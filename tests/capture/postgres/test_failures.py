"""What a capture of PostgreSQL refuses, each with its remedy; nothing is created again in silence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headwater.capture import CaptureConfig, CaptureStore, SourceInvalid, SourceReplaced, SourceUnreachable
from headwater.capture.postgres import source
from headwater.capture.postgres.connection import Connection
from headwater.capture.postgres.slot import Slot
from headwater.errors import ArgumentInvalid
from tests.capture.postgres.shop import Shop
from tests.capture.shop import log_at
from tests.servers import free_port


class _Answers(Connection):
    """A server that has these settings."""

    # Any: values of settings.
    def __init__(self, *settings: Any) -> None:
        super().__init__(None, "db.example:5432/shop")
        self._settings = settings

    # Any: values of rows.
    def query(self, statement: str, _values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        if "server_version_num" in statement:
            return [self._settings]
        return [(False,)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((130_000, "logical", 10, 10), "older than PostgreSQL 14"),
        ((150_000, "replica", 10, 10), "ALTER SYSTEM SET wal_level = logical"),
        ((150_000, "logical", 0, 10), "max_replication_slots"),
        ((150_000, "logical", 10, 10), "ALTER ROLE … REPLICATION"),
    ],
)
def test_a_server_that_cannot_replicate_is_refused(settings: tuple[Any, ...], message: str) -> None:
    with pytest.raises(SourceInvalid, match=message):
        Slot(_Answers(*settings), capture="shop", name="s", publication=None).check_server()


def test_an_address_without_a_database_or_with_a_password_is_refused(tmp_path: Path) -> None:
    with log_at(tmp_path) as log:
        store = CaptureStore(log)
        for url in ("postgresql://app@host", "postgresql://"):
            with pytest.raises(ArgumentInvalid, match="user@host"):
                store.create(CaptureConfig(name="shop", url=url))


def test_logins_and_rights_that_are_missing_are_told(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.sql("CREATE TABLE orders (id int PRIMARY KEY)")
    monkeypatch.setenv("WRONG", "wrong")
    with pytest.raises(SourceInvalid, match="--password-env") as refused:
        shop.create(password_env="WRONG")
    assert "wrong" not in str(refused.value).lower().replace("password authentication", "")
    with pytest.raises(SourceInvalid, match="Correct the name of the database"):
        shop.create(url=shop.url + "_not")
    with pytest.raises(SourceInvalid, match="no such table"):
        shop.create(tables=["public.nothing"])
    with pytest.raises(SourceInvalid, match="no publication 'sales'"):
        shop.create(url=shop.url + "?publication=sales")
    role = f"poor_{shop.name}"
    shop.sql(f"CREATE ROLE {role} LOGIN PASSWORD 'pw'")
    monkeypatch.setenv("POOR", "pw")
    poor = {"url": shop.url.replace(shop.server.user, role), "password_env": "POOR"}
    with pytest.raises(SourceInvalid, match="ALTER ROLE … REPLICATION"):
        shop.create(**poor)
    shop.sql(f"ALTER ROLE {role} REPLICATION")
    with pytest.raises(SourceInvalid, match="ownership of the tables"):
        shop.create(**poor)
    # With a publication of its owner's, it needs no more than SELECT.
    shop.sql("CREATE PUBLICATION sales FOR TABLE orders WITH (publish_via_partition_root = true)")
    poor["url"] += "?publication=sales"
    shop.create(**poor)
    monkeypatch.setattr(source, "RETRY_SECONDS", 0.01)
    with pytest.raises(SourceInvalid, match="Grant SELECT"), shop.open() as capture:
        capture.catch_up()
    shop.sql(f"GRANT SELECT ON orders TO {role}")
    shop.sql("INSERT INTO orders VALUES (1)")
    shop.catch_up()
    shop.in_step()
    CaptureStore(shop.log).remove("shop")
    assert shop.sql("SELECT count(*) FROM pg_publication")[0][0] == 1
    shop.sql(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_database_that_is_away_is_waited_for_and_then_told(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "AWAY_SECONDS_MAX", 0.0)
    monkeypatch.setattr(source, "RETRY_SECONDS", 0.0)
    with pytest.raises(SourceUnreachable):
        shop.create(url=f"postgresql://app@127.0.0.1:{free_port()}/shop", password_env=None)
    shop.sql("CREATE TABLE orders (id int PRIMARY KEY)")
    shop.create()
    with shop.open() as capture:
        capture.catch_up()
        shop.sql("INSERT INTO orders VALUES (1)")
        # All sessions of the capture are cut: it connects again and goes on where it was.
        monkeypatch.setattr(source, "AWAY_SECONDS_MAX", 60.0)
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'headwater%'"
        shop.sql(cut)
        capture.catch_up()
        shop.in_step()


def test_a_slot_that_is_gone_lost_or_used_by_others_is_refused(shop: Shop) -> None:
    shop.sql("CREATE TABLE orders (id int PRIMARY KEY)")
    shop.create()
    shop.catch_up()
    name = shop.sql("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")[0][0]
    store = CaptureStore(shop.log)
    progress = store.progress("shop")
    assert progress.position is not None
    shop.sql("INSERT INTO orders VALUES (1)")
    shop.wait_until_free(name)
    shop.sql("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", (name,))
    with pytest.raises(SourceReplaced, match="another program"), shop.open() as capture:
        capture.catch_up()
    with shop.open() as capture:
        for fact, value in (("system", "1"), ("timeline", 99), ("lsn", 2**60)):
            before = {"lsn": progress.position["lsn"], **progress.position, fact: value}
            with pytest.raises(SourceReplaced, match="drop the capture and create it again"):
                capture._source.read(before, progress.snapshot, rows_max=10)
    shop.wait_until_free(name)
    shop.sql("SELECT pg_drop_replication_slot(%s)", (name,))
    with pytest.raises(SourceReplaced, match="is gone"), shop.open() as capture:
        capture.catch_up()
    assert not shop.sql("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", (name,))
    assert store.progress("shop") == progress


def test_a_dropped_capture_leaves_the_database_as_it_was(shop: Shop) -> None:
    shop.sql("CREATE TABLE orders (id int PRIMARY KEY)")
    shop.create()
    shop.catch_up()
    CaptureStore(shop.log).remove("shop")
    assert shop.sql("SELECT count(*) FROM pg_publication")[0][0] == 0
    assert not shop.sql("SELECT 1 FROM pg_replication_slots WHERE database = current_database()")


def test_an_idle_slot_keeps_no_wal(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.sql("CREATE TABLE orders (id int PRIMARY KEY); CREATE TABLE other (id int PRIMARY KEY)")
    shop.create(tables=["public.orders"])
    monkeypatch.setattr(source, "IDLE_BYTES_MAX", 1000)
    with shop.open() as capture:
        capture.catch_up()
        before = capture.progress.position
        shop.sql("INSERT INTO other SELECT g FROM generate_series(1, 10000) g")
        capture.catch_up()
        assert before is not None
        assert capture.progress.position is not None
        assert capture.progress.position["lsn"] > before["lsn"]
        assert capture.health().pending == 0
