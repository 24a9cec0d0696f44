"""The door of `headwater.schema` is light: formats are loaded by those who use them."""

from __future__ import annotations

import subprocess
import sys

import pytest

import headwater.schema


@pytest.mark.process
def test_importing_the_schema_loads_no_format_and_no_frame_library() -> None:
    script = "import headwater.schema, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"fastavro", "orjson", "pandas", "polars", "pyspark"}


def test_every_name_on_the_door_is_there() -> None:
    assert all(hasattr(headwater.schema, name) for name in headwater.schema.__all__)
