"""The keys of subjects: personal fields of events are encrypted with them, and are erased by destroying them.

The key store is a SQLite file in a folder of its own, so that it can have other backup rules than the log: who restores an
old key store restores what was erased. Deleted keys are overwritten, in the file and in its journal.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from headwater.log import Log
from headwater.optional import require
from headwater.sourcing.errors import KeyLost, KeyStoreUnusable

#: The field of the JSON object that stands for an encrypted value: the key's id, nonce and cipher text in base64, and what
#: the value is a part of, which the cipher text is bound to.
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
        database.execute(
            "CREATE TABLE IF NOT EXISTS erasing(id INTEGER PRIMARY KEY, subject TEXT NOT NULL, key BLOB NOT NULL)"
        )
        database.execute("CREATE TABLE IF NOT EXISTS certificates(id TEXT PRIMARY KEY, body TEXT NOT NULL)")
        database.execute("CREATE TABLE IF NOT EXISTS secret(key BLOB NOT NULL)")
        # From the begin on, so that each backup has it.
        query = "INSERT INTO secret SELECT ? WHERE NOT EXISTS (SELECT 1 FROM secret)"
        database.execute(query, (secrets.token_bytes(32),))
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
        return {MARK: [key.id, base64.b64encode(sealed).decode(), about]}

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
        number, sealed = value[MARK][:2]
        cipher = self._by_id.get(number)
        if cipher is None:
            with self._lock:
                row = self._db.execute("SELECT key FROM keys WHERE id = ?", (number,)).fetchone()
                if row is None:
                    if self._db.execute("SELECT 1 FROM erased WHERE id = ?", (number,)).fetchone() is not None:
                        return None
                    raise KeyLost(path=str(self.path), key=number)
                cipher = self._by_id[number] = self._make(row[0])
        plain = opened(cipher, sealed, about)
        if plain is None:
            raise KeyLost(path=str(self.path), key=number)
        return plain

    # Any: the JSON of an event.
    def decrypt_if_known(self, value: Any, about: str) -> bytes | None:
        """The value that a JSON stands for; None if it was erased, or its key is lost."""
        try:
            return self.decrypt(value, about)
        except KeyLost:
            return None

    def seal_snapshot(self, state: bytes) -> bytes:
        """A snapshot, encrypted: it may hold personal values of any subject."""
        return orjson.dumps(self.encrypt(SNAPSHOTS, state, SNAPSHOTS))

    def open_snapshot(self, sealed: bytes) -> bytes:
        """A snapshot, or nothing if it is older than an erasure."""
        return self.decrypt(orjson.loads(sealed), SNAPSHOTS) or b""

    # -- erasing ------------------------------------------------------------------------------------------------------
    #
    # An erasure takes the keys away from all readers first, and destroys them when nothing in plain text is left: until
    # then it must know what to search for, also if its process dies.

    def begin_erasure(self, subjects: Iterable[str]) -> dict[str, int]:
        """Take the keys of subjects away from all readers; return how many each subject has, also of earlier calls."""
        with self._lock:
            with _Transaction(self._db):
                for subject in subjects:
                    query = "INSERT INTO erasing SELECT id, subject, key FROM keys WHERE subject = ?"
                    self._db.execute(query, (subject,))
                    self._forget_keys("subject = ?", subject)
                self._forget_keys("subject = ?", SNAPSHOTS)
                self._db.execute(f"PRAGMA user_version = {self._erasures() + 1}")
            self._overwrite_journal()
            self._forget()
            return dict(self._db.execute("SELECT subject, count(*) FROM erasing GROUP BY subject"))

    def _forget_keys(self, condition: str, value: str) -> None:
        self._db.execute(f"INSERT OR IGNORE INTO erased SELECT id FROM keys WHERE {condition}", (value,))
        self._db.execute(f"DELETE FROM keys WHERE {condition}", (value,))

    def end_erasure(self, certificates: Iterable[tuple[str, str, str]]) -> None:
        """Destroy the keys of subjects, and overwrite their bytes; keep each one's certificate until it is appended."""
        with self._lock:
            with _Transaction(self._db):
                for subject, number, body in certificates:
                    self._db.execute("DELETE FROM erasing WHERE subject = ?", (subject,))
                    self._db.execute("INSERT OR REPLACE INTO certificates VALUES (?, ?)", (number, body))
            self._overwrite_journal()

    def certificates(self) -> dict[str, str]:
        """Certificates of keys that were destroyed, by their ids, which are not known to be in the log."""
        return dict(self._db.execute("SELECT id, body FROM certificates"))

    def forget_certificates(self, numbers: Iterable[str]) -> None:
        """The certificates are in the log."""
        with self._lock, _Transaction(self._db):
            self._db.executemany("DELETE FROM certificates WHERE id = ?", [(number,) for number in numbers])

    def has_key(self, subject: str) -> bool:
        """Whether a subject has a key, or one that is being erased."""
        query = "SELECT 1 FROM keys WHERE subject = ?1 UNION SELECT 1 FROM erasing WHERE subject = ?1"
        return self._db.execute(query, (subject,)).fetchone() is not None

    # Any: ciphers of the optional package.
    def erasing(self) -> dict[int, tuple[str, Any]]:
        """The keys that are being erased: subjects and ciphers, by the keys' ids."""
        rows = self._db.execute("SELECT id, subject, key FROM erasing").fetchall()
        return {number: (subject, self._make(key)) for number, subject, key in rows}

    def pseudonym(self, subject: str) -> str:
        """What stands for a subject in certificates: a hash that only the holder of the key store can compute."""
        row = self._db.execute("SELECT key FROM secret").fetchone()
        return hmac.new(row[0], subject.encode(), hashlib.sha256).hexdigest()[:32]

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


# Any: a cipher of the optional package.
def opened(cipher: Any, sealed: str, about: str) -> bytes | None:
    """A value that was encrypted with this key and for this purpose; None for another one, or a damaged one."""
    data = base64.b64decode(sealed)
    try:
        plain: bytes = cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], about.encode())
    except Exception:  # the package's own class, and it is optional
        return None
    return plain
