"""Publication and replication slot of a capture: created, checked, measured, dropped.

Nothing is created again in silence: a slot that is gone, lost its changes, or belongs to another database is an error.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from headwater.capture.errors import SourceInvalid, SourceReplaced
from headwater.capture.port import Position
from headwater.capture.postgres.catalogue import CatalogueTable
from headwater.capture.postgres.connection import Connection, explained, identifier
from headwater.capture.postgres.messages import format_lsn, parse_lsn
from headwater.errors import InUse
from headwater.optional import require

#: How long a slot that a dead process still holds is waited for.
HELD_SECONDS_MAX = 30.0
VERSION_MIN = 140_000
#: A slot is in danger when less than this share of `max_slot_wal_keep_size` is left.
GUARD_SHARE = 0.25
OBJECT_IN_USE = "55006"
_SLOT = """
SELECT s.active, s.active_pid, s.wal_status, s.safe_wal_size, s.confirmed_flush_lsn::text, s.restart_lsn::text, s.database = current_database(), s.plugin, r.write_lsn::text,
  pg_size_bytes(current_setting('max_slot_wal_keep_size'))
FROM pg_replication_slots s LEFT JOIN pg_stat_replication r ON r.pid = s.active_pid WHERE s.slot_name = %s
"""


@dataclass(frozen=True)
class SlotState:
    """A slot as the database shows it."""

    active: bool
    holder: int | None
    wal_status: str | None
    safe_bytes: int | None
    confirmed: int | None
    restart: int | None
    written: int | None
    keep_bytes_max: int
    """What the server keeps for a slot at most; -1 for everything."""

    @property
    def is_endangered(self) -> bool:
        """Whether the server may soon delete WAL that the slot needs."""
        is_near = self.safe_bytes is not None and self.safe_bytes < self.keep_bytes_max * GUARD_SHARE
        return self.wal_status == "unreserved" or is_near


class Slot:
    """The publication and the slot that belong to a capture; both have its name and id."""

    def __init__(self, connection: Connection, *, capture: str, name: str, publication: str | None) -> None:
        self._connection = connection
        self._capture = capture
        self.name = name
        self._is_own = publication is None
        self.publication = publication or name

    # -- publication --------------------------------------------------------------------------------------------------

    def check_server(self) -> None:
        """Raise unless the server can replicate logically, and this user may."""
        place = self._connection.place
        version, level, slots, senders = self._connection.query(
            "SELECT current_setting('server_version_num')::int, current_setting('wal_level'), "
            "current_setting('max_replication_slots')::int, current_setting('max_wal_senders')::int"
        )[0]
        if version < VERSION_MIN:
            raise SourceInvalid(source=place, why="it is older than PostgreSQL 14", instead="Upgrade the database")
        if level != "logical":
            raise SourceInvalid(
                source=place,
                why=f"its wal_level is {level!r}, and its changes cannot be decoded",
                instead="Run `ALTER SYSTEM SET wal_level = logical` as a superuser, and restart PostgreSQL",
            )
        if not slots or not senders:
            raise SourceInvalid(
                source=place,
                why="max_replication_slots or max_wal_senders is 0",
                instead="Set both to 10, and restart PostgreSQL",
            )
        may = self._connection.query("SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user")
        if not may or not may[0][0]:
            raise SourceInvalid(
                source=place,
                why="its user may not replicate",
                instead="Run `ALTER ROLE … REPLICATION` as a superuser for the user of the capture",
            )
        if self._connection.query("SELECT pg_is_in_recovery()")[0][0]:
            raise SourceInvalid(
                source=place, why="it is a standby", instead="Give the address of the primary, which has the slots"
            )

    def publish(self, tables: Sequence[CatalogueTable]) -> list[CatalogueTable]:
        """Let the publication have exactly these tables; return those that are new in it."""
        known = self._published()
        if known is None:
            if not self._is_own:
                raise SourceInvalid(
                    source=self._connection.place,
                    why=f"it has no publication {self.publication!r}, which the address names",
                    instead=f"Let an owner of the tables run `CREATE PUBLICATION {self.publication} FOR TABLE … "
                    "WITH (publish_via_partition_root = true)`",
                )
            names = ", ".join(one.quoted for one in tables)
            self._connection.query(
                f"CREATE PUBLICATION {identifier(self.publication)} FOR TABLE {names} WITH (publish_via_partition_root = true)"
            )
            return list(tables)
        wanted = {(one.schema, one.name): one for one in tables}
        added = [one for place, one in wanted.items() if place not in known]
        if added and not self._is_own:
            raise SourceInvalid(
                source=self._connection.place,
                why=f"the publication {self.publication!r} does not have the table {added[0].full_name!r}",
                instead=f"Run `ALTER PUBLICATION {self.publication} ADD TABLE {added[0].quoted}`, or name fewer tables",
            )
        publication = identifier(self.publication)
        if added:
            self._connection.query(
                f"ALTER PUBLICATION {publication} ADD TABLE {', '.join(one.quoted for one in added)}"
            )
        removed = known - wanted.keys()
        if removed and self._is_own:
            names = ", ".join(f"{identifier(schema)}.{identifier(name)}" for schema, name in sorted(removed))
            self._connection.query(f"ALTER PUBLICATION {publication} DROP TABLE {names}")
        return added

    def _published(self) -> set[tuple[str, str]] | None:
        if not self._connection.query("SELECT 1 FROM pg_publication WHERE pubname = %s", (self.publication,)):
            return None
        rows = self._connection.query(
            "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s", (self.publication,)
        )
        return {(schema, table) for schema, table in rows}

    # -- slot ---------------------------------------------------------------------------------------------------------

    # Any: a connection of libpq's.
    def create(self, replication: Any) -> tuple[int, str]:
        """Create the slot; return its position, and the name of a snapshot as of it that lives until the next command."""
        if self.state() is not None:  # from a run that died before anything was captured
            self._drop_slot()
        result = replication.exec_(
            f"CREATE_REPLICATION_SLOT {identifier(self.name)} LOGICAL pgoutput (SNAPSHOT 'export')".encode()
        )
        check_result(result, self._connection.place)
        return parse_lsn(result.get_value(0, 1).decode()), result.get_value(0, 2).decode()

    def state(self) -> SlotState | None:
        rows = self._connection.query(_SLOT, (self.name,))
        if not rows:
            return None
        active, holder, status, safe, confirmed, restart, _, _, written, keep_bytes_max = rows[0]
        return SlotState(active, holder, status, safe, _lsn(confirmed), _lsn(restart), _lsn(written), keep_bytes_max)

    def check(self, position: Position) -> SlotState:
        """Raise unless the changes behind a position are still there."""
        system = self.system()
        for fact in ("system", "timeline"):
            if str(system[fact]) != str(position.get(fact, system[fact])):
                self._replaced(
                    f"its {fact} is {system[fact]}, and the capture has read {position[fact]}: it is another database, was restored or failed over"
                )
        if system["lsn"] < position["lsn"]:
            self._replaced(
                f"its log ends at {format_lsn(system['lsn'])}, and the capture has read up to {format_lsn(position['lsn'])}"
            )
        state = self.state()
        if state is None:
            self._replaced(f"the replication slot {self.name!r} is gone")
        assert state is not None
        if state.wal_status == "lost":
            self._replaced(
                f"the replication slot {self.name!r} is lost: the capture was away for longer than max_slot_wal_keep_size allows, and the changes are deleted"
            )
        if state.confirmed is not None and state.confirmed > position["lsn"]:
            self._replaced(
                f"the replication slot {self.name!r} is at {format_lsn(state.confirmed)}, behind {format_lsn(position['lsn'])}: another program has used it"
            )
        return state

    def system(self) -> dict[str, Any]:
        identity, timeline, lsn = self._connection.query(
            "SELECT (SELECT system_identifier::text FROM pg_control_system()), "
            # The timeline of the last checkpoint would be the old one for a while after a failover.
            "('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int, "
            "pg_current_wal_insert_lsn()::text"
        )[0]
        return {"system": identity, "timeline": timeline, "lsn": parse_lsn(lsn)}

    def wait_until_free(self) -> None:
        """Wait while a process that has died still holds the slot; the server notices it soon."""
        deadline = time.monotonic() + HELD_SECONDS_MAX
        pause = 0.02
        while (state := self.state()) is not None and state.active:
            if time.monotonic() > deadline:
                raise InUse(
                    what=f"The replication slot {self.name!r}",
                    by=f"the server process {state.holder}",
                    instead=f"End the other run of capture {self._capture!r}; or run `SELECT pg_terminate_backend({state.holder})`",
                )
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def drop(self) -> None:
        """Drop the slot, and the publication if it is the capture's own."""
        if self.state() is not None:
            self._drop_slot()
        if self._is_own:
            self._connection.query(f"DROP PUBLICATION IF EXISTS {identifier(self.publication)}")

    def _drop_slot(self) -> None:
        self.wait_until_free()
        self._connection.query("SELECT pg_drop_replication_slot(%s)", (self.name,))

    def refuse_other_history(self, lsn: int) -> NoReturn:
        """Raise because the database has other transactions in front of a position than those that were captured."""
        self._replaced(
            f"in front of {format_lsn(lsn)} it lacks the transaction that was captured last, or has another one: it was restored from a copy of its files, and has gone on since then"
        )

    def _replaced(self, why: str) -> NoReturn:
        raise SourceReplaced(source=self._connection.place, capture=self._capture, why=why)


def _lsn(text: str | None) -> int | None:
    return None if text is None else parse_lsn(text)


# Any: values of libpq's.
def check_result(result: Any, place: str) -> None:
    """Raise what a command on a replication connection was answered, unless it succeeded."""
    psycopg = require("psycopg", extra="postgres")
    status = psycopg.pq.ExecStatus
    if result.status not in (status.TUPLES_OK, status.COMMAND_OK, status.COPY_BOTH):
        with explained(place):
            raise psycopg.errors.error_from_result(result)
