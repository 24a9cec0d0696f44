"""Which target an address names: ours, and those that other packages bring.

A target is a class with the class methods `address` and `open`. A package adds one by an entry point whose name is the
scheme of the addresses:

    [project.entry-points."headwater.targets"]
    elasticsearch = "my_package.elasticsearch:ElasticTarget"
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Protocol

from headwater.capture.config import without_password
from headwater.errors import ArgumentInvalid
from headwater.sync.config import SyncConfig
from headwater.sync.port import Target

GROUP = "headwater.targets"
#: The targets of this package, by the scheme of their addresses. Each is imported when it is used.
BUILT_IN = {
    "delta": "headwater.sync.delta:DeltaTarget",
    "duckdb": "headwater.sync.duckdb:DuckdbTarget",
    "mariadb": "headwater.sync.mariadb:MariadbTarget",
    "mysql": "headwater.sync.mariadb:MariadbTarget",
    "parquet": "headwater.sync.parquet:ParquetTarget",
    "postgresql": "headwater.sync.postgres:PostgresTarget",
    "redis": "headwater.sync.redis:RedisTarget",
    "rediss": "headwater.sync.redis:RedisTarget",
    "search": "headwater.sync.search:SearchTarget",
    "sqlite": "headwater.sync.sqlite:SqliteTarget",
}


class TargetKind(Protocol):
    """How targets of one kind are reached."""

    @classmethod
    def address(cls, url: str) -> str:
        """Check an address, and return it in a form that means the same to all processes."""

    @classmethod
    def open(cls, config: SyncConfig) -> Target:
        """Open the target of a sync. Raises if the sync has options that the target does not know."""


def target_kind(url: str) -> type[TargetKind]:
    """The kind of target that an address names.

    >>> target_kind("sqlite:///copy.db").__name__
    'SqliteTarget'
    """
    scheme = url.partition(":")[0]
    if scheme in BUILT_IN:
        module, _, name = BUILT_IN[scheme].partition(":")
        return getattr(import_module(module), name)  # type: ignore[no-any-return]
    for entry in entry_points(group=GROUP, name=scheme):
        return entry.load()  # type: ignore[no-any-return]
    expected = "an address that begins with " + ", ".join(f"{one}://" for one in BUILT_IN)
    raise ArgumentInvalid(name="url", value=without_password(url), expected=expected)


def open_target(config: SyncConfig) -> Target:
    """Open the target of a sync."""
    return target_kind(config.url).open(config)
