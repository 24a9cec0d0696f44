"""Certificates of erasures: rows of the topic `erasures`, without any personal value."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import orjson

from headwater.log import Log
from headwater.schema import parse_schema
from headwater.sourcing.keys import KeyStore

#: The topic with the certificates of all erasures.
ERASURES = "erasures"
_SCHEMA = parse_schema(
    "id string not null, subject string not null, at timestamp not null, outcome string not null, by string, why string, "
    "keys int64 not null, events int64 not null, entities int64 not null, values_searched int64 not null, "
    "values_too_short int64 not null, values_shared int64 not null, rewritten list<string> not null, "
    "searched list<string> not null, files int64 not null, bytes int64 not null, "
    "remaining list<struct<place string, remedy string>> not null, accepted list<string> not null"
)

#: `pending` until nothing is left but what was accepted.
Outcome = Literal["pending", "complete"]


@dataclass(frozen=True, kw_only=True)
class Remainder:
    """A place where values of a subject may be left, and what to do about it."""

    place: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What an erasure did, and where values of the subject were still found: a row of the topic `erasures`.

    `subject` is a hash that only the key store's holder can compute; `name` is the subject, where it is known.
    """

    id: str
    subject: str
    at_us: int
    outcome: Outcome
    by: str | None
    why: str | None
    keys: int
    """Keys that are destroyed, or will be once the erasure is complete; until then no program can read with them."""
    events: int
    entities: int
    values_searched: int
    values_too_short: int
    values_shared: int
    """Values that other persons have, too: they were not searched for."""
    rewritten: list[str]
    """Places that were emptied, rewritten or built again."""
    searched: list[str]
    """Places that were searched by their rows, beside the files."""
    files: int
    bytes: int
    remaining: list[Remainder]
    accepted: list[str]
    """Places with values, or that could not be searched, which the caller accepted."""
    name: str | None = None

    @property
    def complete(self) -> bool:
        """Whether the keys are destroyed, and values of the subject are nowhere but in accepted places."""
        return self.outcome == "complete"

    def to_json(self) -> str:
        body = asdict(self)
        del body["name"]
        return orjson.dumps(body).decode()

    @classmethod
    # Any: JSON.
    def from_json(cls, body: dict[str, Any], *, name: str | None = None) -> Certificate:
        known = {field.name for field in fields(cls)}
        remaining = [Remainder(**each) for each in body["remaining"]]
        return cls(
            **{key: value for key, value in body.items() if key in known} | {"remaining": remaining, "name": name}
        )


def append_certificates(log: Log, certificates: list[Certificate]) -> None:
    """Append certificates to the topic `erasures`."""
    if not certificates:
        return
    log.create(ERASURES, _SCHEMA, retention="forever", exist_ok=True)
    rows = [orjson.loads(each.to_json()) for each in certificates]
    log.append(ERASURES, [{"at": row.pop("at_us"), **row} for row in rows])


def append_kept(log: Log, keys: KeyStore) -> None:
    """Append certificates of keys that were destroyed by a process that died before it could append them."""
    kept = keys.certificates()
    if kept:
        known = {each.id for each in certificates(log) if each.complete}
        append_certificates(
            log, [Certificate.from_json(orjson.loads(body)) for number, body in kept.items() if number not in known]
        )
        keys.forget_certificates(kept)


def certificates(log: Log) -> list[Certificate]:
    """The last certificate of each erasure, in the order of their times."""
    if ERASURES not in log.topics():
        return []
    last: dict[str, Certificate] = {}
    for row in log.read(ERASURES).rows():
        last.pop(row["id"], None)
        at = row.pop("at")
        last[row["id"]] = Certificate.from_json({**row, "at_us": round(at.timestamp() * 1e6)})
    return list(last.values())
