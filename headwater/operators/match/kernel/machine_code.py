"""Functions over arrays as machine code: compiled once, and kept on disk for every process that comes after.

The code is kept beside the package where that can be written, else in the user's cache folder; where neither can be,
each process compiles for itself. Machine code of one file has code and constants of others in it, and Numba looks only
at the file itself: so the folder has a name that changes with any of them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from headwater.optional import require

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """The function as machine code, with the types of its first call."""
    return _compiled(function)


def inlined(function: Function) -> Function:
    """Machine code that is put where it is called, and allocates nothing.

    LLVM does it, not Numba: a function's types are then found once, which takes less than half of the time to compile,
    and the code is faster.
    """
    return _compiled(function, forceinline=True, _nrt=False)


def allocation_free(function: Function) -> Function:
    """Machine code that allocates nothing: references to arrays need not be counted, which would take longer than most
    of what is done for a row."""
    return _compiled(function, _nrt=False)


def _compiled(function: Function, **options: Any) -> Function:
    numba = require("numba", extra="match")
    made: Any  # it is called as the function is
    try:
        with _kept_in(numba):
            made = numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:  # no folder for the code
        made = numba.njit(nogil=True, **options)(function)
    found: Function = made
    return found


@contextmanager
def _kept_in(numba: Any) -> Iterator[None]:  # Any: a module
    """While functions are declared, their code is kept in the folder of all sources as they are now."""
    before = numba.config.CACHE_DIR
    own = Path(__file__).parent
    usual = own / "__pycache__" if os.access(own, os.W_OK) else Path.home() / ".cache" / "headwater"
    numba.config.CACHE_DIR = str((Path(before) if before else usual) / f"match-{sources_mark(own)}")
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


@cache
def sources_mark(folder: Path) -> str:
    """A mark of all sources that machine code may be made of."""
    found = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]
