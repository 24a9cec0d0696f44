"""Packages that only some sinks need, asked for by name when they are."""

from __future__ import annotations

from importlib.util import find_spec

from headwater.errors import PackageMissing


def need(package: str, *, extra: str) -> None:
    """Say which extra to install, where a package is missing.

    >>> need("a_package_of_nobody", extra="postgres")
    Traceback (most recent call last):
    headwater.errors.PackageMissing: The package 'a_package_of_nobody' is not installed. Run `pip install 'headwater[postgres]'`.
    """
    if find_spec(package) is None:
        raise PackageMissing(package=package, extra=extra)
