"""Jars by their Maven coordinates, fetched once into a folder of the user's cache."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.peer_servers import PeerUnavailable

FETCH_SECONDS_MAX = 300.0
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def fetched(folder: str, pom: str, *, what: str) -> Path:
    """The folder of the cache with the jars that a POM names; raise `PeerUnavailable` if Maven cannot fetch them.

    A POM that changes needs a folder of another name: see `named_by`.
    """
    place = Path.home() / ".cache" / "headwater" / folder
    if place.is_dir():
        return place
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable(f"{what}: not in {place}, and Maven, which would fetch it, is not installed")
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as work:
        jars, file = Path(work, "jars"), Path(work, "pom.xml")
        file.write_text(pom)
        words = [maven, "-q", "-B", "-f", str(file), "dependency:copy-dependencies"]
        words += [f"-DoutputDirectory={jars}", "-DincludeScope=runtime"]
        print(f"fetching {what} by Maven", file=sys.stderr, flush=True)
        try:
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=FETCH_SECONDS_MAX)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise PeerUnavailable(f"{what}: cannot be fetched by Maven: {error}") from None
        # Renamed when it is whole; another process may have been first.
        with contextlib.suppress(OSError):
            jars.rename(place)
    return place


def pom_of(artifacts: Mapping[str, str], *, alone: bool = False) -> str:
    """A POM that depends on artifacts, named `group:name`, in a version of each; `alone` without what they depend on."""
    needed = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"{_ALONE if alone else ''}</dependency>"
        for (group, name), version in ((one.split(":"), version) for one, version in artifacts.items())
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>headwater</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{needed}</dependencies></project>"
    )


def named_by(name: str, pom: str) -> str:
    """The name of a folder for the jars of a POM, another one for each text."""
    return f"{name}-{hashlib.sha256(pom.encode()).hexdigest()[:12]}"


def spark_jars(folder: Path) -> str:
    """The jars of a folder as the value of `spark.jars`."""
    return ",".join(str(path) for path in sorted(folder.glob("*.jar")))
