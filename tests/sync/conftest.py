"""Servers for the tests of targets."""

from __future__ import annotations

from tests.servers import mariadb as mariadb
from tests.servers import postgres as postgres
from tests.servers import redis_peer as redis_peer
