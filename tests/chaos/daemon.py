"""Spark's daemon, with what all workers need loaded before it forks them: a restart then takes half of the time."""

from __future__ import annotations

import importlib

from pyspark.daemon import manager

NEEDED = ("pandas", "pyarrow.compute", "pyspark.sql.pandas.types", "headwater.spark.datasource", "tests.chaos.query")

if __name__ == "__main__":
    for module in NEEDED:
        importlib.import_module(module)
    manager()
