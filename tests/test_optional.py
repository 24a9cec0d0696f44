"""Optional packages: a missing one is named with its extra; one that is broken is not called missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headwater.optional import PackageMissing, is_installed, require


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "orjson", None)
    assert not is_installed("orjson")
    with pytest.raises(PackageMissing, match=r"'orjson' is not installed. Run `pip install 'headwater\[views\]'`"):
        require("orjson", extra="views")


def test_a_package_that_lacks_another_is_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_installed.py").write_text("import a_part_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_part_that_is_not_there"):
        require("half_installed", extra="views")
