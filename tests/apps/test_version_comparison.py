"""Two versions of an output are compared whatever their columns are called."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from headwater.apps.replay import compared, contents, corrections
from headwater.log import open as open_log

SCHEMA = {"user": "string", "n": "int64", "o": "int64", "old": "int64"}


def test_columns_may_have_any_names() -> None:
    old = pa.table({"user": ["a", "b", "same"], "n": [1, 2, 3], "o": [1, 1, 1], "old": [0, 0, 0]})
    new = pa.table({"user": ["a", "c", "same"], "n": [2, 2, 3], "o": [1, 1, 1], "old": [0, 0, 0]})
    found = compared(old, new, key=("user",))
    assert (found["same"], found["changed"], found["only_active"], found["only_trial"]) == (1, 1, 1, 1)
    assert len(found["samples"]) == 3


def test_corrections_make_one_topic_say_what_the_other_says(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        for name in ("old", "new"):
            log.create(name, SCHEMA, key="user", compact=True)
        log.append("old", [{"user": user, "n": 1, "o": 1, "old": 1} for user in ("a", "b", "same")])
        log.append("new", [{"user": user, "n": n, "o": 1, "old": 1} for user, n in (("a", 2), ("c", 2), ("same", 1))])
        changes = corrections(log, "old", "new")
        assert sorted(changes.column("user").to_pylist()) == ["a", "b", "c"]
        log.append("old", changes)
        rows = [sorted(contents(log, name, keyed=True).to_pylist(), key=str) for name in ("old", "new")]
        assert rows[0] == rows[1]
