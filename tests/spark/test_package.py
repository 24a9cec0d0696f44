"""`headwater package`: executors that have neither Headwater nor its packages take both from an archive."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import headwater as hw
from benchmarks.spark_cluster import environment, spark_cluster
from headwater.errors import NotFound
from headwater.spark.package import write_package
from tests.spark.shop import FILE, append_orders, create_orders, expected, totals


def test_a_package_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no-such-package"):
        write_package(tmp_path / "environment.tar.gz", packages=["no-such-package"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.process
def test_an_archive_is_an_environment_with_headwater_and_without_sparks_jars(tmp_path: Path) -> None:
    count = write_package(tmp_path / "environment.tar.gz", packages=["psutil"], extras=[])
    with tarfile.open(tmp_path / "environment.tar.gz") as archive:
        names = archive.getnames()
        archive.extractall(tmp_path / "environment", filter="fully_trusted")
    assert len(names) == count + 2
    assert not any("pyspark" in name or name.endswith(".pth") for name in names)
    code = "import headwater, psutil, sys; headwater.open; print(headwater.__file__, psutil.__file__, *sys.path)"
    words = [str(tmp_path / "environment" / "bin" / "python"), "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env={}, check=True)
    ours, theirs, *places = done.stdout.split()
    assert Path(ours).is_relative_to(tmp_path)
    assert Path(theirs).is_relative_to(tmp_path)
    assert not any(".venv" in place for place in places)


@pytest.mark.long
@pytest.mark.process
@pytest.mark.spark
def test_executors_that_have_no_headwater_take_it_from_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)  # executors would find our files by it
    cli = [sys.executable, "-m", "headwater.cli"]
    subprocess.run([*cli, "package", "environment.tar.gz"], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "environment").mkdir()
    subprocess.run(["tar", "-xzf", "environment.tar.gz", "-C", "environment"], cwd=tmp_path, check=True)
    archive = '"spark.archives": "environment.tar.gz#environment", '
    (tmp_path / "shop.py").write_text(FILE.replace("conf={", "conf={" + archive))
    python = {"PYSPARK_PYTHON": "./environment/bin/python"}
    with spark_cluster(tmp_path / "cluster", workers=1) as cluster, hw.open(tmp_path / "data", create=True) as log:
        create_orders(log)
        append_orders(log, 0, 3_000)
        words = [*cli, "run", "shop.py", "--master", cluster.url, "--until-caught-up"]
        done = subprocess.run(words, cwd=tmp_path, env=environment() | python, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert totals(log) == expected(log)
        [place] = cluster.workers[0].folder.glob("app-*/0")
        assert (place / "environment" / "bin" / "python").is_symlink(), "the executor has unpacked the archive"
