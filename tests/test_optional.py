"""Optional packages: a missing one is named with its extra; one that is broken is not called missing."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

import headwater
from headwater.cli import leave_pandas_out, let_pandas_in
from headwater.optional import EXTRAS, PackageMissing, is_installed, require, require_extras
from headwater.testing import AppTest

ROOT = Path(__file__).parents[1]


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


def test_every_extra_of_the_package_is_known_with_its_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS) == set(project) - {"docs", "dev"}
    # Some packages have another name where they are imported.
    names = {
        "google-re2": "re2",
        "pystemmer": "Stemmer",
        "adbc-driver-postgresql": "adbc_driver_postgresql",
        "ipython": "IPython",
        "confluent-kafka": "confluent_kafka",
        "paho-mqtt": "paho",
        "pyzmq": "zmq",
    }
    for extra, wanted in project.items():
        if extra in EXTRAS and extra != "demo":
            packages = [re.split(r"[\[<>=]", text)[0] for text in wanted]
            assert set(EXTRAS[extra].packages) == {names.get(package, package) for package in packages}


def test_all_extras_that_are_missing_are_in_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    sentence = r"The package 'pyspark' is not installed\. Run `pip install 'headwater\[spark,views\]'`\."
    with pytest.raises(PackageMissing, match=sentence):
        require_extras("spark", "views", "server")
    with pytest.raises(PackageMissing, match=sentence):
        AppTest("shop.py")
    with pytest.raises(PackageMissing, match=r"headwater\[spark\]"):
        headwater.session()


def test_a_package_that_a_command_hides_is_installed_all_the_same() -> None:
    leave_pandas_out()
    try:
        assert is_installed("pandas")
        require_extras("spark")
    finally:
        let_pandas_in()
