"""Erase what the events say of persons: destroy their keys, rewrite what was derived, and search all bytes for what is left.

Steps, each of which a second call repeats after a crash:

1. The keys are taken away from all readers, in all processes. They still exist, so that a call knows what to search for.
2. What is derived and may hold plain text is emptied, built again or rewritten.
3. Everything is searched. What is left is `remaining`, and the erasure is pending until a call finds nothing more.
4. The keys are destroyed, with the certificate in the same transaction; then the certificate is appended to the log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Protocol

from headwater.errors import NotFound
from headwater.faults import reach
from headwater.log import Log
from headwater.log.embedded import local_log
from headwater.sourcing.certificate import (
    Certificate,
    Remainder,
    append_certificates,
    append_kept,
    certificates,
)
from headwater.sourcing.file_search import FileFindings, search_files
from headwater.sourcing.keys import KeyStore, keys_folder
from headwater.sourcing.personal_values import PersonalValues, personal_values
from headwater.sourcing.projection_files import clear_projections, projection_files


@dataclass
class Traces:
    """What an erasure has done and found in places, beside the files: remainders by subject."""

    rewritten: list[str] = field(default_factory=list)
    searched: list[str] = field(default_factory=list)
    remaining: dict[str, list[Remainder]] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    """Further files and folders to search."""
    queries: list[Path] = field(default_factory=list)
    """The folders of queries that read what is erased: their files must be readable."""

    def leave(self, subjects: Iterable[str], place: str, remedy: str) -> None:
        """Values of subjects are, or may be, in a place."""
        for subject in subjects:
            known = self.remaining.setdefault(subject, [])
            if place not in [each.place for each in known]:
                known.append(Remainder(place=place, remedy=remedy))


class Place(Protocol):
    """Where data derived from events is kept, and may be in plain text."""

    def erase(self, values: PersonalValues, topics: set[str], traces: Traces) -> None:
        """Rewrite and search what is derived from these topics."""


def erase(
    log: Log,
    subjects: str | Sequence[str],
    *,
    keys: str | Path | None = None,
    by: str | None = None,
    why: str | None = None,
    rewrite: Sequence[str] = (),
    search: Iterable[str | Path] = (),
    accept: Sequence[str] = (),
) -> list[Certificate]:
    """Erase the personal values of subjects, and certify it in the topic `erasures`.

    Their keys are taken away; projections are emptied, and built again at their next use; stores of views are built
    again from their topics, and tables of syncs that hold values. With `rewrite`, rows of topics of these names (or
    patterns) get "[erased]" in the place of values. Then every byte of the log's folder and of `search` is searched, and
    every row of views and targets. If nothing is left, the keys are destroyed. Otherwise the certificate is `pending`, and
    `remaining` says where values are and what to do: call again afterwards, or `accept` places by name or pattern.

    A call after another one, or after one that was killed, finishes the job. Raises `NotFound` for a subject that has no
    key and was not erased.
    """
    chosen = [subjects] if isinstance(subjects, str) else list(dict.fromkeys(subjects))
    local_log(log)
    store = KeyStore(keys_folder(log, keys))
    try:
        append_kept(log, store)
        done = _erased_before(log, store, chosen)
        left = [subject for subject in chosen if subject not in done]
        if left:
            found = _Erasure(log, store, rewrite=rewrite, accept=accept).run(left, search=search, by=by, why=why)
            done |= {str(each.name): each for each in found}
    finally:
        store.close()
    return [done[subject] for subject in chosen]


def erased(log: Log, subjects: Sequence[str] = (), *, keys: str | Path | None = None) -> list[Certificate]:
    """The certificates of all erasures, or of these subjects, the oldest first."""
    found = certificates(log)
    if not subjects:
        return found
    store = KeyStore(keys_folder(log, keys))
    try:
        names = {store.pseudonym(subject): subject for subject in subjects}
    finally:
        store.close()
    missing = sorted(set(names) - {each.subject for each in found})
    if missing:
        raise NotFound(kind="erasure of subject", name=names[missing[0]])
    return [replace(each, name=names[each.subject]) for each in found if each.subject in names]


def _erased_before(log: Log, store: KeyStore, subjects: Sequence[str]) -> dict[str, Certificate]:
    """The last certificates of subjects that have no key any more; raise for one that never had any."""
    without = [subject for subject in subjects if not store.has_key(subject)]
    if not without:
        return {}
    known = {each.subject: each for each in certificates(log) if each.complete}
    for subject in without:
        if store.pseudonym(subject) not in known:
            raise NotFound(kind="key of subject", name=subject)
    return {subject: replace(known[store.pseudonym(subject)], name=subject) for subject in without}


class _Erasure:
    """One run of an erasure."""

    def __init__(self, log: Log, store: KeyStore, *, rewrite: Sequence[str], accept: Sequence[str]) -> None:
        self._log, self._store = log, store
        self._rewrite, self._accept = rewrite, accept

    def run(
        self, subjects: Sequence[str], *, search: Iterable[str | Path], by: str | None, why: str | None
    ) -> list[Certificate]:
        counts = self._store.begin_erasure(subjects)
        reach("erasure.begun")
        values = personal_values(self._log, self._store)
        traces = Traces(files=[Path(each) for each in search])
        for path, problem in clear_projections(self._log, values.topics):
            if problem is None:
                traces.rewritten.append(f"projection {path}")
            else:
                remedy = f"Close the programs that use the file, and erase again ({problem})."
                traces.leave(values.subjects, f"projection {path}", remedy)
        reach("erasure.projections_cleared")
        topics = values.topics | self._rewrite_topics(values, traces)
        reach("erasure.topics_rewritten")
        for place in _derived_places(self._log):
            place.erase(values, topics, traces)
        reach("erasure.derived")
        places = [*_folders(self._log), self._store.folder, *projection_files(self._log), *traces.files]
        findings = search_files(places, values.search)
        self._name_files(findings, values, traces)
        reach("erasure.searched")
        return self._certify(subjects, counts, values, traces, findings, by=by, why=why)

    def _rewrite_topics(self, values: PersonalValues, traces: Traces) -> set[str]:
        names = {name for pattern in self._rewrite for name in self._log.topics(pattern, internal=True)}
        for name in sorted(names):
            keep = self._log.topic(name).key
            if local_log(self._log).change_rows(name, partial(values.change, keep=keep)):
                traces.rewritten.append(f"topic {name}")
        return names

    def _name_files(self, findings: FileFindings, values: PersonalValues, traces: Traces) -> None:
        for subject, paths in findings.found.items():
            for path in sorted(paths):
                traces.leave([subject], *_place_of(self._log, path))
        apps = self._log.home / "apps"
        for path in findings.unreadable:
            if not path.is_relative_to(apps) or any(path.is_relative_to(folder) for folder in traces.queries):
                place, remedy = _place_of(self._log, path)
                traces.leave(values.subjects, place, f"{path} cannot be read. {remedy}")

    def _certify(
        self,
        subjects: Sequence[str],
        counts: dict[str, int],
        values: PersonalValues,
        traces: Traces,
        findings: FileFindings,
        *,
        by: str | None,
        why: str | None,
    ) -> list[Certificate]:
        at_us = self._log.clock.now_us()
        made = []
        for subject in subjects:
            about = values.subjects[subject]
            left = traces.remaining.get(subject, [])
            accepted = [each.place for each in left if any(fnmatchcase(each.place, one) for one in self._accept)]
            left = [each for each in left if each.place not in accepted]
            numbers = sorted(number for number, (name, _) in self._store.erasing().items() if name == subject)
            certificate = Certificate(
                id=hashlib.sha256(repr(numbers).encode()).hexdigest()[:32],
                subject=self._store.pseudonym(subject),
                name=subject,
                at_us=at_us,
                outcome="pending" if left else "complete",
                by=values.without_values(by),
                why=values.without_values(why),
                keys=counts.get(subject, 0),
                events=about.events,
                entities=len(about.entities),
                values_searched=len(about.values),
                values_too_short=about.too_short,
                values_shared=about.shared,
                rewritten=traces.rewritten,
                searched=traces.searched,
                files=findings.files,
                bytes=findings.bytes,
                remaining=left,
                accepted=accepted,
            )
            made.append(certificate)
        complete = [each for each in made if each.complete]
        append_certificates(self._log, [each for each in made if not each.complete])
        self._store.end_erasure((str(each.name), each.id, each.to_json()) for each in complete)
        reach("erasure.destroyed")
        append_kept(self._log, self._store)
        return made


def _derived_places(log: Log) -> Sequence[Place]:
    """Places of upper layers, which are imported by name when they are used: views, sinks, syncs."""
    places: Sequence[Place] = import_module("headwater.apps.derived_data").derived_places(log)
    return places


def _folders(log: Log) -> set[Path]:
    """The folders of a log; topics in memory have theirs elsewhere."""
    storages = {local_log(log).handle(topic).storage for topic in log.topics(internal=True)}
    return {Path(log.address), log.home, *storages}


def _place_of(log: Log, path: Path) -> tuple[str, str]:
    """The name of the place that a file belongs to, and what to do about values in it."""
    again = "and erase again"
    if path in projection_files(log):
        name = str(path).removesuffix("-wal").removesuffix("-shm")
        return f"projection {name}", f"Close the programs that use the file, {again}."
    for root in (Path(log.address), log.home):
        if not path.is_relative_to(root):
            continue
        parts = path.relative_to(root).parts
        if parts[0] in ("topics", "archive") and len(parts) > 2:
            return f"topic {parts[1]}", f"Erase again with `--rewrite {parts[1]}`, or delete the topic {again}."
        if parts[0] == "quarantine":
            return str(path), f"Delete the file, whose bytes are in no topic, {again}."
        if parts[0] == "entities":
            return str(
                path
            ), f"Stop the programs that use these entities, delete the file (it is built again), {again}."
        if parts[0] == "transactions":
            return str(path), f"Commit or roll back the transaction, or delete what a dead task has staged, {again}."
        if parts[0] == "apps" and len(parts) > 2 and parts[2].startswith("views.duckdb"):
            return f"views of app {parts[1]}", f"Stop the app {again}: its store is then built again from its topics."
        if parts[0] == "apps" and len(parts) > 2 and parts[2] in ("queries", "state"):
            name = "/".join(parts[:4])
            return name, f"Stop the app, delete {root / name} (its query then begins again), {again}."
    return str(path), f"Delete or rewrite the file, {again}."
