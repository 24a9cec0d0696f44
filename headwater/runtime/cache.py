"""Where Headwater keeps what it can make again: the folder that the platform has for caches."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """The folder for things that cost time to make and nothing to lose; it exists and can be written.

    A process without a home, or with one that it may not write, gets a folder of its own among the temporary ones.
    """
    environ = os.environ if environ is None else environ
    for folder in _candidates(environ):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    return Path(tempfile.mkdtemp(prefix="headwater-"))


def _candidates(environ: Mapping[str, str]) -> list[Path]:
    home = environ.get("HOME") or environ.get("USERPROFILE")
    if sys.platform == "darwin":
        base = f"{home}/Library/Caches" if home else None
    elif sys.platform == "win32":
        base = environ.get("LOCALAPPDATA")
    else:
        base = environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else None)
    return [Path(base, "headwater")] if base else []


def write_once(path: Path, text: str, *, executable: bool = False) -> Path:
    """Put a small file where it is missing or different; other processes see the old one or the new one, whole."""
    try:
        if path.read_text(encoding="utf-8") == text:
            return path
    except OSError:
        pass  # missing, or not readable: either way it is written anew
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(temporary, 0o700 if executable else 0o600)
    os.replace(temporary, path)
    return path
