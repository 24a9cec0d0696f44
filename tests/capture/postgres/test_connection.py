"""What is made of the errors of PostgreSQL's driver."""

from __future__ import annotations

import psycopg
import pytest

from headwater.capture.errors import SourceInvalid, SourceUnreachable
from headwater.capture.postgres.connection import explained


def test_a_stream_that_breaks_is_a_database_out_of_reach_and_is_tried_again() -> None:
    with pytest.raises(SourceUnreachable), explained("db.example/shop"):
        raise psycopg.DatabaseError("error with status PGRES_COPY_BOTH and no message from the libpq")


def test_what_the_server_refuses_is_no_lost_connection() -> None:
    with pytest.raises(SourceInvalid, match="syntax"), explained("db.example/shop"):
        raise psycopg.errors.SyntaxError("syntax error")


def test_a_server_that_stops_is_out_of_reach() -> None:
    with pytest.raises(SourceUnreachable), explained("db.example/shop"):
        raise psycopg.errors.AdminShutdown("terminating connection due to administrator command")
