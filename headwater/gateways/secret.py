"""Secrets of gateways, from an environment variable or a file: no setting, report or log has them."""

from __future__ import annotations

import os
from pathlib import Path

from headwater.errors import NotFound


def read_secret(*, env: str, file: str) -> str | None:
    """The secret, read when the gateway is opened, so that it can be replaced; None if neither is named."""
    if env:
        if env not in os.environ:
            raise NotFound(kind="environment variable", name=env)
        return os.environ[env]
    if file:
        try:
            return Path(file).read_text().strip()
        except OSError as error:
            raise NotFound(kind="file", name=file, near=f" {error.strerror}.") from error
    return None
