"""A capture of PostgreSQL that is killed with SIGKILL at each of its steps loses and doubles nothing."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from headwater.capture import Capture, CaptureConfig, CaptureStore
from headwater.capture.postgres import snapshot
from headwater.faults import CAPTURE_CRASH_POINTS
from headwater.testing import CrashAt, run_until_killed
from tests.capture.postgres.shop import PASSWORD_ENV, Shop
from tests.capture.shop import log_at


def captured(folder: Path, url: str, conninfo: str) -> None:
    """Capture in small pieces, with changes in between; the rows say in which order they were made."""
    snapshot.BLOCKS_FIRST = snapshot.BLOCKS_MAX = 2
    with log_at(folder) as log, psycopg.connect(conninfo, autocommit=True) as writer:
        if "shop" not in CaptureStore(log).configs():
            CaptureStore(log).create(CaptureConfig(name="shop", url=url, password_env=PASSWORD_ENV))
        with Capture.open(log, "shop") as capture:
            for _ in range(4):
                capture.step()
            for _ in range(3):
                with writer.transaction():
                    writer.execute("INSERT INTO visits SELECT coalesce(max(n), 0) + 1 FROM visits")
                    writer.execute("INSERT INTO orders SELECT max(id) + 1, 'new' FROM orders")
                    with writer.transaction(force_rollback=True):
                        writer.execute("INSERT INTO visits SELECT -1 FROM generate_series(1, 2000)")
                writer.execute("UPDATE orders SET item = item || '+' WHERE id % 7 = 0")
                writer.execute("DELETE FROM orders WHERE id = (SELECT min(id) FROM orders)")
                capture.step()
            capture.catch_up()


@pytest.mark.process
@pytest.mark.parametrize("visit", [1, 5])
@pytest.mark.parametrize("point", CAPTURE_CRASH_POINTS)
def test_a_killed_capture_loses_and_doubles_nothing(point: str, visit: int, shop: Shop) -> None:
    shop.sql("CREATE TABLE orders (id int PRIMARY KEY, item text); CREATE TABLE visits (n int)")
    shop.sql("ALTER TABLE visits REPLICA IDENTITY FULL")
    shop.sql("INSERT INTO orders SELECT g, 'old' FROM generate_series(1, 1000) g; INSERT INTO visits VALUES (0)")
    shop.log.close()
    arguments = (shop.folder, shop.url, shop.conninfo)
    run_until_killed(lambda: captured(*arguments), at=CrashAt(point=point, visit=visit))
    assert run_until_killed(lambda: captured(*arguments)).code == 0
    shop.log = log_at(shop.folder)
    shop.in_step()
    visits = [row["n"] for row in shop.rows("public.visits")]
    assert visits == [n for (n,) in shop.sql("SELECT n FROM visits ORDER BY n")]
