"""Laws here have no time limit: the first conversion of a process makes Arrow import pandas, which takes a second."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("schema", deadline=None, print_blob=True)
settings.load_profile("schema")
