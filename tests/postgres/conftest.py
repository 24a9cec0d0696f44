"""Servers for the tests of transactions over a log and a database."""

from __future__ import annotations

from tests.servers import postgres as postgres
