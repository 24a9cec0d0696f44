"""The jars by which Spark keeps its checkpoint in an object store, fetched once into a folder of the user's cache."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.peer_servers import PeerUnavailable

POM = Path(__file__).parents[1] / "deploy" / "spark" / "pom.xml"
FETCH_SECONDS_MAX = 300.0


def s3a_jars() -> str:
    """The value of `spark.jars`; raise `PeerUnavailable` if the jars are neither here nor to be had by Maven."""
    name = f"s3a-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"
    folder = Path.home() / ".cache" / "headwater" / name
    if not folder.is_dir():
        _fetch(folder)
    return ",".join(str(path) for path in sorted(folder.glob("*.jar")))


def _fetch(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable(
            f"Spark's jars for s3a:// are not in {folder}, and Maven, which would fetch them, is missing"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        jars = Path(place, "jars")
        words = [maven, "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"]
        words += [f"-DoutputDirectory={jars}", "-DincludeScope=runtime"]
        print("fetching Spark's jars for s3a:// by Maven", file=sys.stderr, flush=True)
        try:
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=FETCH_SECONDS_MAX)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise PeerUnavailable(f"Spark's jars for s3a:// cannot be fetched by Maven: {error}") from None
        with contextlib.suppress(OSError):  # another process may have been first
            jars.rename(folder)
