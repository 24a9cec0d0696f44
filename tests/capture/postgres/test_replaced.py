"""A PostgreSQL that was restored or has failed over is refused: the changes behind the position may not be there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.capture import CaptureStore, SourceReplaced
from headwater.capture.postgres.messages import format_lsn
from tests.capture.postgres.shop import PASSWORD_ENV, Shop
from tests.servers import PeerUnavailable, Postgres, postgres_server

pytestmark = pytest.mark.process


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Postgres]:
    """A server of its own: it is stopped and changed."""
    monkeypatch.setenv(PASSWORD_ENV, Postgres.password)
    try:
        with postgres_server() as made:
            yield made
    except PeerUnavailable as why:
        pytest.skip(str(why))


def test_a_restored_or_failed_over_database_is_refused_with_the_remedy(server: Postgres, tmp_path: Path) -> None:
    shop = Shop(server, tmp_path)
    shop.sql("CREATE TABLE orders (id INT PRIMARY KEY, item TEXT)")
    shop.create()
    shop.catch_up()
    shop.connection.close()
    server.stop()
    server.back_up()
    server.start()
    server.execute("INSERT INTO orders SELECT n, 'tea' FROM generate_series(1, 1000) n", conninfo=shop.conninfo)
    assert shop.catch_up() == 1000

    server.stop()
    server.restore()
    server.start()
    with pytest.raises(SourceReplaced, match=r"its log ends at .*drop the capture and create it again"):
        shop.catch_up()

    # It grows past the position of the capture: the changes in front of it would be taken for old ones.
    position = CaptureStore(shop.log).progress("shop").position
    assert position is not None
    server.execute("INSERT INTO orders SELECT n, 'milk' FROM generate_series(1, 2000) n", conninfo=shop.conninfo)
    assert server.execute(f"SELECT pg_current_wal_lsn() > '{format_lsn(position['lsn'])}'") == [(True,)]
    with pytest.raises(SourceReplaced, match=r"lacks the transaction .*drop the capture and create it again"):
        shop.catch_up()

    server.stop()
    server.fail_over()
    with pytest.raises(SourceReplaced, match=r"its timeline is 2, and the capture has read 1.*failed over"):
        shop.catch_up()
    assert shop.log.read("shop.public.orders").count() == 1000
    shop.log.close()
