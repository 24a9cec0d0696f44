"""Packages that only some users need: loaded when first used, and asked for by the extra that brings them."""

from __future__ import annotations

import importlib
from typing import Any

from headwater.errors import ArgumentInvalid

_EXTRAS = {
    "duckdb": "views",
    "adbc_driver_postgresql": "postgres",
    "psycopg": "postgres",
    "httpx": "views",
}


# Any: a module has whatever names it has.
def required(name: str) -> Any:
    """The module of this name, or one error that says how to get it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.split(".")[0]:
            raise
        extra = _EXTRAS.get(name.split(".")[0], "views")
        expected = f"a Python with the package: `pip install 'headwater[{extra}]'`"
        raise ArgumentInvalid(name="package", value=name, expected=expected) from error
