"""An archive of Headwater and what it needs, which executors of a cluster unpack that have neither.

It is a virtual environment without Spark's jars, which executors have. Its Python is a link to that of this machine: the
executors need the same Python at the same path, on the same kind of machine, since packages such as pyarrow are compiled.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePath

from headwater.errors import NotFound
from headwater.optional import EXTRAS

#: Extras whose packages tasks may use; those that are installed here go into the archive.
EXTRAS_OF_TASKS = ("spark", "match", "search", "sketches", "kafka", "lake", "s3", "sourcing")
_SITE = PurePath("lib", f"python{sys.version_info.major}.{sys.version_info.minor}", "site-packages")
#: Folders of packages that tasks do without; Spark's jars alone are half a gigabyte.
_LEFT_OUT = ("pyspark/jars/", "pyspark/examples/", "pyspark/data/", "pyspark/sbin/")
_REQUIREMENT = re.compile(r"^\s*([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")


def write_package(path: Path, *, packages: Iterable[str] = (), extras: Iterable[str] | None = None) -> int:
    """Write the archive, with further packages that are installed here; return the number of its files.

    Extras are by default those that tasks may need, as far as they are installed.
    """
    chosen = [name for name in EXTRAS_OF_TASKS if not EXTRAS[name].missing()] if extras is None else list(extras)
    found: dict[str, Distribution] = {}
    for name in packages:
        _collect(name, set(), found, required=True)
    _collect("headwater", set(chosen), found, required=True)
    count = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
            _add_python(archive)
            for place, source in _files(found.values()):
                archive.add(source, str(_SITE / place), recursive=False)
                count += 1
        os.chmod(temporary, 0o644)  # executors may be another user's
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return count


def _collect(name: str, extras: set[str], found: dict[str, Distribution], *, required: bool = False) -> None:
    """Add a distribution and those that it requires. One that is not installed is not for this machine."""
    try:
        own = distribution(name)
    except PackageNotFoundError:
        if required:
            raise NotFound(kind="package", name=name) from None
        return
    key = _normal(name)
    if key in found and not extras:
        return
    found[key] = own
    for line in own.requires or ():
        requirement, _, marker = line.partition(";")
        of_extra = _EXTRA.search(marker)
        if of_extra is not None and of_extra[1] not in extras:
            continue
        parsed = _REQUIREMENT.match(requirement)
        if parsed is None:
            continue
        wanted = {one.strip() for one in (parsed[2] or "").split(",") if one.strip()}
        if _normal(parsed[1]) not in found or wanted:
            _collect(parsed[1], wanted, found)


def _files(distributions: Iterable[Distribution]) -> Iterator[tuple[PurePath, Path]]:
    """Each file with its name below `site-packages`; our own package wherever it lies."""
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            yield PurePath("headwater") / path.relative_to(root), path
    for one in distributions:
        for name in one.files or ():
            text = name.as_posix()
            if text.startswith(("..", "headwater/", *_LEFT_OUT)) or text.endswith((".pyc", ".pth")):
                continue
            source = Path(str(one.locate_file(name)))
            if source.is_file():
                yield PurePath(text), source


def _add_python(archive: tarfile.TarFile) -> None:
    """What makes a folder a virtual environment: a link to the Python, and a file that says where that one is at home."""
    python = Path(sys.executable).resolve()
    link = tarfile.TarInfo("bin/python")
    link.type, link.linkname = tarfile.SYMTYPE, str(python)
    archive.addfile(link)
    text = f"home = {python.parent}\ninclude-system-site-packages = false\n".encode()
    settings = tarfile.TarInfo("pyvenv.cfg")
    settings.size = len(text)
    archive.addfile(settings, io.BytesIO(text))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
