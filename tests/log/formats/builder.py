"""Makes a small log with every kind of file, and says what is in it.

When the format changes, run this file with the code of the last release, before the change:

    git archive COMMIT headwater | tar -x -C OLD && PYTHONPATH=OLD python tests/log/formats/builder.py DATE

It writes `DATE.tar.gz` beside it: the log, and `expected.json` with what that code reads from it. It therefore uses
nothing but the public names of `headwater`; what an early release did not have is left out.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headwater

#: Bytes of a segment that holds about five rows.
SEGMENT = 1_500
ROWS = 16
TYPED = {
    "id": "int64",
    "name": "string",
    "at": "timestamp",
    "price": "decimal(10,2)",
    "ok": "boolean",
    "raw": "binary",
    "tags": "list<string>",
}


def build(folder: Path) -> dict[str, Any]:
    """Make the log in `folder`; return what can be read from it."""
    log: Any  # of another release
    with headwater.open(folder) as log:
        log.create("plain", {"id": "int64"}, segment_bytes_max=SEGMENT)
        log.create("loose", {"id": "int64"}, segment_bytes_max=SEGMENT, durability="os")
        log.create("typed", TYPED, partitions=2, key="name")
        log.create("table", {"id": "int64", "n": "int64"}, key="id", compact=True, segment_bytes_max=SEGMENT)
        log.create("parts", {"id": "int64"}, partitions=2)
        for number in range(ROWS):
            log.append("plain", [{"id": number}], producer="p", sequence=number)
            log.append("loose", [{"id": number}], headers={"trace": b"t"})
            log.append("typed", [typed(number)])
            log.append("table", [{"id": number % 5, "n": number}])
            with log.transaction("q", sequence=number) as transaction:
                for partition in range(2):
                    transaction.append("parts", [{"id": number}], partition=partition)
                transaction.commit_offsets("g", "plain", {0: number})
        log.append("table", [{"id": 4, "_tombstone": True}])
        log.punctuate("plain", 1_700_000_000_000_000)
        maintain = getattr(log, "maintain", None) or log.tidy
        maintain("plain", seal=True)
        maintain("table", seal=True)
        log.alter("typed", schema={**TYPED, "more": "int64"})
        log.append("typed", [{**typed(ROWS), "more": 1}])
        _append_view(log)
        expected: dict[str, Any] = {}
        if hasattr(log, "queue"):
            with log.queue("jobs") as queue:
                for number in range(5):
                    queue.put({"n": number})
                for message in queue.take(n=2):
                    message.ack()
            expected["queue"] = [2, 3, 4]
        if hasattr(headwater, "Entities"):
            with accounts_of(log) as accounts:
                for amount in (5, 7):
                    accounts.send("ada", Deposit(amount))
            expected["balance"] = 12
        pending = log.transaction()
        pending.append("parts", [{"id": 1_000}], partition=0)
        expected["prepared"] = pending.prepare()
        expected["committed"] = log.committed("g", "plain")[0]
        expected["sequence"] = log.committed_sequence("q")
        expected["rows"] = {topic: rows_of(log, topic) for topic in log.topics()}
    return expected


def typed(number: int) -> dict[str, Any]:
    at = f"2026-01-01T00:00:{number:02d}Z"
    tags = None if number % 3 else [str(number), "x"]
    return {
        "id": number,
        "name": f"n{number}",
        "at": at,
        "price": "1.50",
        "ok": number % 2 == 0,
        "raw": b"r",
        "tags": tags,
    }


def _append_view(log: Any) -> None:  # Any: the log of another release
    """The changelog of a view, as two batches of a query write it."""
    log.create("spend", {"card": "int64", "total": "float64"}, key="card", compact=True)
    for batch in range(2):
        with log.transaction("spend-query", sequence=batch) as transaction:
            transaction.append("spend", [{"card": card, "total": float(batch)} for card in range(3 - batch)])


def rows_of(log: Any, topic: str) -> list[list[Any]]:
    """Position and value of each row, as JSON has them."""
    rows = log.read(topic).rows()
    kept = [{name: row[name] for name in row if name not in ("_appended_at", "_sent_at")} for row in rows]
    ordered = sorted(kept, key=lambda row: (row["_partition"], row["_offset"]))
    values: list[list[Any]] = json.loads(json.dumps([sorted(row.items()) for row in ordered], default=str))
    return values


@dataclass(frozen=True)
class Deposit:
    amount: int


@dataclass(frozen=True)
class Deposited:
    amount: int


@dataclass(frozen=True)
class Account:
    balance: int = 0


def decide(account: Account, command: Deposit) -> list[Deposited]:  # noqa: ARG001
    return [Deposited(command.amount)]


def evolve(account: Account, event: Deposited) -> Account:
    return Account(account.balance + event.amount)


def accounts_of(log: Any) -> Any:  # Any: the entities of another release
    decider = headwater.Decider(initial=Account(), decide=decide, evolve=evolve)
    return headwater.Entities(log, "account", decider, partitions=2)


def pack(date: str) -> Path:
    """Make the log and pack it beside this file."""
    target = Path(__file__).with_name(f"{date}.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        expected = build(Path(folder) / "log")
        (Path(folder) / "expected.json").write_text(json.dumps(expected))
        with tarfile.open(target, "w:gz") as archive:
            for path in _files(Path(folder)):
                archive.add(path, path.relative_to(folder), recursive=False)
    return target


def _files(folder: Path) -> Iterator[Path]:
    """Without locks, and without SQLite's files of other processes."""
    for path in sorted(folder.rglob("*")):
        if not path.name.endswith(".lock"):
            yield path


if __name__ == "__main__":
    print(pack(sys.argv[1]))
