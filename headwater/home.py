"""The folder where this machine keeps what belongs to a log but is no row of it: homes of apps, tokens, locks, views.

For a log in a folder it is that folder. For a log behind a server it is a folder of the user, named by the log's address.
"""

from __future__ import annotations

import hashlib
from pathlib import Path


def is_remote(address: str | Path) -> bool:
    """Whether an address is that of a server, and not a folder."""
    return "://" in str(address)


def home_of(address: str | Path) -> Path:
    """The folder beside a log, or that of this user for a log elsewhere.

    >>> home_of("data").name
    'data'
    >>> home_of("https://log.example.org/").parent == home_of("https://other.example.org").parent
    True
    """
    if not is_remote(address):
        return Path(address)
    name = hashlib.sha256(str(address).rstrip("/").encode()).hexdigest()[:16]
    return Path.home() / ".local" / "state" / "headwater" / name
