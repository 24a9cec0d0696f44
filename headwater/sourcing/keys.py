"""The keys of subjects: personal fields of events are encrypted with them, and are erased by destroying them.

The key store is a SQLite file in a folder of its own, so that it can have other backup rules than the log: who restores an
old key store restores what was erased. Deleted keys are overwritten, in the file and in its journal.
"""

from __future__ import annotations

import base64
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from headwater.log import Log
from headwater.optional import require
from headwater.sourcing.errors import KeyLost, KeyStoreUnusable

#: The field of the JSON object that stands for an encrypted value: the key's id, and nonce and cipher text in base64.
MARK = "$personal"
NONCE_BYTES = 12
#: Whose key snapshots are encrypted with. An erasure destroys it, too.
SNAPSHOTS = "\0snapshots"
FOLDER = "keys"


class _Key(NamedTuple):
    id: int
    # Any: the package is optional.
    cipher: Any


class KeyStore:
    """Keys by subject, shared by the processes that use one folder.

    A key that was made is stored by `save`, before anything that is encrypted with it is appended.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = folder / "keys.sqlite"
        self._lock = threading.RLock()
        self._make = require("cryptography.hazmat.primitives.ciphers.aead", extra="sourcing").AESGCM
        try:
            self._db = self._open()
        except sqlite3.Error as error:
            raise KeyStoreUnusable(path=str(self.path), why=str(error)) from error
        self._version = self._data_version()
        self._generation, self._erased = 0, self._erasures()
        self._by_subject: dict[str, _Key] = {}
        self._by_id: dict[int, Any] = {}
        self._new: list[tuple[int, str, bytes]] = []

    def _open(self) -> sqlite3.Connection:
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        database = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=30.0)
        for pragma in ("secure_delete = ON", "journal_mode = PERSIST", "synchronous = FULL"):
            database.execute(f"PRAGMA {pragma}")
        database.execute(
            "CREATE TABLE IF NOT EXISTS keys(id INTEGER PRIMARY KEY, subject TEXT NOT NULL, key BLOB NOT NULL)"
        )
        database.execute("CREATE INDEX IF NOT EXISTS subjects ON keys(subject)")
        database.execute("CREATE TABLE IF NOT EXISTS erased(id INTEGER PRIMARY KEY)")
        return database

    def _data_version(self) -> int:
        return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    def _erasures(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def generation(self) -> int:
        """A number that changes when keys have been destroyed, by this or another process: forget what was decrypted."""
        with self._lock:
            version = self._data_version()
            if version != self._version:
                self._version = version
                erasures = self._erasures()
                if erasures != self._erased:
                    self._erased = erasures
                    self._forget()
            return self._generation

    def _forget(self) -> None:
        self._generation += 1
        self._by_subject.clear()
        self._by_id.clear()

    # -- encrypting ---------------------------------------------------------------------------------------------------

    def encrypt(self, subject: str, plain: bytes, about: str) -> dict[str, list[int | str]]:
        """The JSON that stands for a value; a subject without a key gets one."""
        with self._lock:
            key = self._by_subject.get(subject) or self._key_of(subject)
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = nonce + key.cipher.encrypt(nonce, plain, about.encode())
        return {MARK: [key.id, base64.b64encode(sealed).decode()]}

    def _key_of(self, subject: str) -> _Key:
        row = self._db.execute("SELECT id, key FROM keys WHERE subject = ? LIMIT 1", (subject,)).fetchone()
        if row is None:
            row = (secrets.randbits(53), secrets.token_bytes(32))
            self._new.append((row[0], subject, row[1]))
        key = self._by_subject[subject] = _Key(row[0], self._make(row[1]))
        self._by_id[key.id] = key.cipher
        return key

    def save(self) -> None:
        """Store the new keys. Two processes may make a key for one subject: both are valid."""
        with self._lock:
            if self._new:
                with _Transaction(self._db):
                    self._db.executemany("INSERT INTO keys VALUES (?, ?, ?)", self._new)
                self._new = []

    # Any: the JSON of an event.
    def decrypt(self, value: Any, about: str) -> bytes | None:
        """The value that a JSON stands for; None if it was erased."""
        number, sealed = value[MARK]
        cipher = self._by_id.get(number)
        if cipher is None:
            with self._lock:
                row = self._db.execute("SELECT key FROM keys WHERE id = ?", (number,)).fetchone()
                if row is None:
                    if self._db.execute("SELECT 1 FROM erased WHERE id = ?", (number,)).fetchone() is not None:
                        return None
                    raise KeyLost(path=str(self.path), key=number)
                cipher = self._by_id[number] = self._make(row[0])
        data = base64.b64decode(sealed)
        try:
            plain: bytes = cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], about.encode())
        except Exception as error:  # the package's own class, and it is optional
            raise KeyLost(path=str(self.path), key=number) from error
        return plain

    def seal_snapshot(self, state: bytes) -> bytes:
        """A snapshot, encrypted: it may hold personal values of any subject."""
        return orjson.dumps(self.encrypt(SNAPSHOTS, state, SNAPSHOTS))

    def open_snapshot(self, sealed: bytes) -> bytes:
        """A snapshot, or nothing if it is older than an erasure."""
        return self.decrypt(orjson.loads(sealed), SNAPSHOTS) or b""

    # -- erasing ------------------------------------------------------------------------------------------------------

    def ids(self, subjects: Iterable[str]) -> dict[int, str]:
        """The ids of the keys of some subjects."""
        query = "SELECT id FROM keys WHERE subject = ?"
        return {row[0]: subject for subject in subjects for row in self._db.execute(query, (subject,))}

    def destroy(self, subjects: Sequence[str]) -> int:
        """Delete the keys of subjects, and overwrite their bytes; return how many there were."""
        with self._lock:
            ids = self.ids(subjects)
            with _Transaction(self._db):
                self._db.executemany("INSERT OR IGNORE INTO erased VALUES (?)", [(number,) for number in ids])
                self._db.executemany("DELETE FROM keys WHERE id = ?", [(number,) for number in ids])
                self._db.execute(f"PRAGMA user_version = {self._erasures() + 1}")
            self._overwrite_journal()
            self._forget()
            self._new = [each for each in self._new if each[1] not in subjects]
        return len(ids)

    def _overwrite_journal(self) -> None:
        """Fill the journal with zeros: it had the pages as they were before. A journal of zeros is an empty one."""
        # In a transaction, so that no other process writes meanwhile.
        with _Transaction(self._db), suppress(FileNotFoundError), open(f"{self.path}-journal", "r+b") as file:
            file.write(bytes(os.fstat(file.fileno()).st_size))
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        self._db.close()


class _Transaction:
    """A transaction of SQLite that excludes other writers."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __enter__(self) -> None:
        self._database.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._database.execute("COMMIT" if kind is None else "ROLLBACK")


def keys_folder(log: Log, folder: str | Path | None) -> Path:
    """The folder of a log's key store, unless another one is given."""
    return log.home / FOLDER if folder is None else Path(folder)


# Any: JSON.
def is_encrypted(value: Any) -> bool:
    """Whether a JSON value stands for an encrypted one."""
    return type(value) is dict and MARK in value and len(value) == 1


def plain_values(keys: KeyStore, body: dict[str, Any], about: str, ids: dict[int, str]) -> list[tuple[str, Any]]:
    """The decrypted values of an event that belong to some keys, each with its subject."""
    found = []
    for value in body.values():
        if is_encrypted(value) and value[MARK][0] in ids:
            plain = keys.decrypt(value, about)
            if plain is not None:
                found.append((ids[value[MARK][0]], orjson.loads(plain)))
    return found
