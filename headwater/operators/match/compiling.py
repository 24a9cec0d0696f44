"""Functions over arrays as machine code: compiled once, and kept on disk for every process that comes after.

The code is kept beside the package where that can be written, else in the user's cache folder; where neither can be,
each process compiles for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from headwater.errors import PackageMissing

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """The function as machine code, with the types of its first call."""
    return _compiled(function)


def inlined(function: Function) -> Function:
    """Machine code that is put where it is called, and allocates nothing."""
    return _compiled(function, inline="always", _nrt=False)


def counting_nothing(function: Function) -> Function:
    """Machine code that allocates nothing: references to arrays need not be counted, which would take longer than most
    of what is done for a row."""
    return _compiled(function, _nrt=False)


def _compiled(function: Function, **options: Any) -> Function:
    try:
        import numba
    except ImportError:
        raise PackageMissing(package="numba", extra="match") from None
    made: Any  # it is called as the function is
    try:
        made = numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:  # no folder for the code
        made = numba.njit(nogil=True, **options)(function)
    found: Function = made
    return found
