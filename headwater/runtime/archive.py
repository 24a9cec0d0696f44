"""A class archive for the JVM: made once at the end of a first session, it halves the start of all later ones.

The JVM loads some ten thousand classes before Spark answers; from an archive it maps them instead. The archive is
written by a JVM as it exits, under a name of its own, and adopted by the next session that finds it whole. So no
process waits for another, none sees half a file, and where anything is wrong the JVM starts without it.

Java 25 and newer keep an *ahead-of-time cache* for this, older ones a *class-data-sharing archive*.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headwater.runtime.cache import cache_folder
from headwater.runtime.java import Java

AOT_RELEASE_MIN = 25
#: A JVM that has not finished its archive after so long was killed.
UNFINISHED_SECONDS_MAX = 600.0
_MAGIC_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Archive:
    """The place of the archive for one combination of Java, Spark and flags."""

    path: Path
    ahead_of_time: bool

    @staticmethod
    def of(java: Java, *, spark: str, jars: Path, flags: str = "", environ: Mapping[str, str] | None = None) -> Archive:
        """Where the archive for these belongs; one made for others would be refused by the JVM."""
        kind = "aot" if java.release >= AOT_RELEASE_MIN else "jsa"
        # The JVM compares the class path by name, size and time; a Spark installed anew is another one.
        installed = jars.stat().st_mtime_ns if jars.is_dir() else 0
        facts = "\n".join([str(java.home), java.version, spark, str(jars), str(installed), flags])
        key = hashlib.sha256(facts.encode()).hexdigest()[:12]
        name = f"spark-{spark}-java-{java.release}-{key}.{kind}"
        return Archive(path=cache_folder(environ) / "classes" / name, ahead_of_time=kind == "aot")

    def options(self) -> list[str]:
        """The JVM's options to use the archive, or to make it where there is none yet."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._adopt()
        quiet = ["-Xlog:disable", "-Xlog:all=error:stderr"]
        if self.path.exists():
            # Either way the JVM does without an archive that it cannot use; it takes the two words for it by no other.
            if self.ahead_of_time:
                return [*quiet, "-XX:AOTMode=auto", f"-XX:AOTCache={self.path}"]
            return [*quiet, "-Xshare:auto", f"-XX:SharedArchiveFile={self.path}"]
        if self._being_made():
            return []
        option = "-XX:AOTCacheOutput" if self.ahead_of_time else "-XX:ArchiveClassesAtExit"
        return [*quiet, f"{option}={self.path}.{uuid.uuid4().hex[:8]}.part"]

    def _adopt(self) -> None:
        """Give a finished archive its name, and remove what a killed JVM left behind."""
        for part in self._parts():
            with contextlib.suppress(OSError):  # another process was quicker
                if _is_whole(part):
                    os.replace(part, self.path)
                elif _age(part) > UNFINISHED_SECONDS_MAX:
                    part.unlink()

    def _being_made(self) -> bool:
        return any(_age(part) < UNFINISHED_SECONDS_MAX for part in self._parts())

    def _parts(self) -> list[Path]:
        return sorted(self.path.parent.glob(f"{self.path.name}.*.part"))


def _is_whole(part: Path) -> bool:
    """The JVM writes the header last, so that a file that begins with zeros is not finished."""
    with part.open("rb") as file:
        return any(file.read(_MAGIC_BYTES))


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")
