"""Machine code that is kept on disk is never that of other sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.operators.match.kernel import machine_code
from headwater.operators.match.kernel.machine_code import sources_mark

SOURCES = ["__init__.py", "codes.py", "conditions.py", "folds.py", "machine_code.py", "search.py"]


@pytest.mark.parametrize("changed", SOURCES)
def test_a_change_of_any_source_leaves_the_code_of_all_behind(changed: str, tmp_path: Path) -> None:
    own = Path(machine_code.__file__).parent
    folders = [tmp_path / "before", tmp_path / "after"]
    for folder in folders:
        folder.mkdir()
        for name in SOURCES:
            (folder / name).write_bytes((own / name).read_bytes())
    (folders[1] / changed).write_bytes((own / changed).read_bytes() + b"\n# other\n")
    assert sources_mark(folders[0]) == sources_mark(own)
    assert sources_mark(folders[1]) != sources_mark(own)


def test_the_code_lies_in_the_folder_of_its_sources() -> None:
    from headwater.operators.match.kernel.search import search_keys

    path = str(search_keys.stats.cache_path)  # type: ignore[attr-defined]  # Numba's, around the function
    assert f"match-{sources_mark(Path(machine_code.__file__).parent)}" in path
