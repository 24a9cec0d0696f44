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
    try:
        import numba
    except ImportError:
        raise PackageMissing(package="numba", extra="match") from None
    made: Any  # it is called as the function is
    try:
        made = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no folder for the code
        made = numba.njit(nogil=True)(function)
    found: Function = made
    return found
