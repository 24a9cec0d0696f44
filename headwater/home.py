"""The folder on this machine for files that belong to a log but are not rows of it: homes of apps, tokens, locks, views.

For a log in a folder it is that folder. For any other log it is a folder of the user, named after the log's address.
"""

from __future__ import annotations

import hashlib
from pathlib import Path


def is_remote(address: str | Path) -> bool:
    """Whether an address is not that of a folder, but of a server or a cluster."""
    return "://" in str(address)


def is_server(address: str | Path) -> bool:
    """Whether an address is that of a server of Headwater, which has the log's folder and does what only one process may.

    >>> is_server("https://log.example.org"), is_server("kafka://one:9092"), is_server("data")
    (True, False, False)
    """
    return str(address).startswith(("http://", "https://"))


def absolute_address(address: str | Path) -> str:
    """The address, with a relative folder made absolute: other processes may have another working folder."""
    return str(address) if is_remote(address) else str(Path(address).absolute())


def home_of(address: str | Path) -> Path:
    """The folder of a local log, or a folder of this user for a remote log.

    >>> home_of("data").name
    'data'
    >>> home_of("https://log.example.org/").parent == home_of("https://other.example.org").parent
    True
    """
    if not is_remote(address):
        return Path(address)
    name = hashlib.sha256(str(address).rstrip("/").encode()).hexdigest()[:16]
    return Path.home() / ".local" / "state" / "headwater" / name
