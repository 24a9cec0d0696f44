"""What only the shared store has: a server that may be away, and names that it cannot take."""

from __future__ import annotations

import pytest

from headwater.errors import StoreUnreachable, ViewInvalid
from headwater.log import EmbeddedLog
from headwater.views import PostgresStore, ViewKeeper
from tests.servers import PeerUnavailable, Postgres, free_port, postgres_server
from tests.views.conftest import SPEND, spec

SECONDS_MAX = 60.0


def test_a_view_goes_on_when_its_server_is_back(log: EmbeddedLog) -> None:
    log.create("spend", SPEND, key="card", compact=True)
    try:
        server = postgres_server()
        with server as database:
            store = PostgresStore(database.new_database())
            keeper = ViewKeeper(log, store)
            view = keeper.add(spec())
            log.append("spend", [{"card": 1, "total": 1.0}])
            keeper.catch_up()
            database.stop()
            log.append("spend", [{"card": 1, "total": 2.0}])
            with pytest.raises(StoreUnreachable):
                keeper.catch_up()
            with pytest.raises(StoreUnreachable):
                view.get(card=1)
            database.start()
            keeper.catch_up()
            found = view.get(card=1)
            assert found is not None
            assert found["total"] == 2.0
            store.close()
    except PeerUnavailable as error:
        pytest.skip(str(error))


def test_a_server_that_is_not_there_or_refuses_is_told(postgres: Postgres) -> None:
    with pytest.raises(StoreUnreachable):
        PostgresStore(f"postgresql://someone@127.0.0.1:{free_port()}/nowhere")
    with pytest.raises(StoreUnreachable, match="password"):
        PostgresStore(f"postgresql://{postgres.user}:wrong@127.0.0.1:{postgres.port}/postgres")


def test_a_name_that_would_be_cut_is_refused(postgres: Postgres) -> None:
    store = PostgresStore(postgres.new_database())
    with pytest.raises(ViewInvalid, match="63 bytes"):
        store.declare(spec("v" * 63))
    store.close()


def test_apps_keep_apart(postgres: Postgres) -> None:
    address = postgres.new_database()
    one, other = PostgresStore(address, app="one"), PostgresStore(address, app="other")
    one.declare(spec())
    assert other.stored() == []
    one.close()
    other.close()
