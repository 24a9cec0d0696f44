"""Addresses of targets, checked and in a form that means the same to all processes."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from headwater.errors import ArgumentInvalid


def path_address(url: str, *, expected: str) -> str:
    """The address of a file or folder with its whole path, so that processes in other folders find it.

    >>> path_address("sqlite:////tmp/copy.db", expected="sqlite:///path/to/file.db")
    'sqlite:////tmp/copy.db'
    """
    scheme, _, path = url.partition(":///")
    if not path:
        raise ArgumentInvalid(name="url", value=url, expected=expected)
    return f"{scheme}:///{Path(path).absolute()}"


def server_address(url: str, *, expected: str) -> str:
    """The address of a database of a server: it names both."""
    if not urlsplit(url).hostname or not urlsplit(url).path.strip("/"):
        raise ArgumentInvalid(name="url", value=url, expected=expected)
    return url
