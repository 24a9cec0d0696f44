"""Packages that only some users need. Each is imported when first used; a missing one is named with its extra."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from headwater.errors import NotFound


@dataclass(eq=False, kw_only=True)
class PackageMissing(NotFound):
    """Something needs a package that is not installed, for most people do without it."""

    kind: str = "package"
    extra: str
    problem = "The {kind} {name!r} is not installed.{near}"
    remedy = "Run `pip install 'headwater[{extra}]'`."


def is_installed(package: str) -> bool:
    """Whether a package can be imported. It is not imported here.

    >>> is_installed("orjson"), is_installed("no_such_package")
    (True, False)
    """
    return find_spec(package) is not None


# Any: a module has whatever names it has. Where its types matter, an `import` follows the call.
def require(module: str, *, extra: str) -> Any:
    """Import a module of an optional package and return it; raise `PackageMissing` where the package is missing.

    >>> require("no_such_package", extra="postgres")
    Traceback (most recent call last):
    headwater.optional.PackageMissing: The package 'no_such_package' is not installed. Run `pip install 'headwater[postgres]'`.
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (package, module):  # the package is there, and lacks something of its own
            raise
        raise PackageMissing(name=package, extra=extra) from error
