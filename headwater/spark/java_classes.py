"""Our Java classes, for what Spark takes from a Java class only.

Their sources stand beside this module. They are compiled by the compiler that Spark brings and uses for its own queries (Janino), once
for each release of Spark, into a jar in the cache folder; so the package needs no build, and no Java compiler.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.spark.cluster import is_local
from headwater.spark.java import cache_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Set in a session whose JVM has our classes.
_KNOWN = "spark.headwater.javaClasses"
_FOLDER = Path(__file__).parent
_SOURCES = ("CheckpointFiles.java", "StagedRows.java")


def add_java_classes(spark: SparkSession) -> bool:
    """Make our classes known to the JVM of a session; return whether they are."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    # Any: py4j objects have no types.
    java: Any = spark.sparkContext._jvm
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    jar = _jar(java, loader, release=spark.version)
    try:
        loader.addURL(java.java.io.File(str(jar)).toURI().toURL())
    except Py4JError:  # a program that has started the JVM in its own way
        return False
    if not is_local(str(spark.sparkContext.master)):  # executors write rows, and the state of Spark's own operators
        spark.sparkContext._jsc.addJar(str(jar))
    spark.conf.set(_KNOWN, "true")
    return True


def are_known(spark: SparkSession) -> bool:
    """Whether the JVM of a session has our classes."""
    return spark.conf.get(_KNOWN, None) == "true"


# Any: py4j objects have no types.
def _jar(java: Any, loader: Any, *, release: str) -> Path:
    """The jar in the cache folder, compiled if it is not there."""
    sources = [(_FOLDER / name).read_text(encoding="utf-8") for name in _SOURCES]
    key = hashlib.sha256("\n".join([release, *sources]).encode()).hexdigest()[:12]
    path = cache_folder() / f"java-classes-{key}.jar"
    if not path.exists():
        classes: dict[str, bytes] = {}
        for source in sources:
            compiler = java.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(loader)
            compiler.cook(source)
            classes |= {str(name): bytes(code) for name, code in compiler.getBytecodes().items()}
        _write(path, classes)
    return path


def _write(path: Path, classes: dict[str, bytes]) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as jar:
        for name, code in sorted(classes.items()):
            jar.writestr(f"{name.replace('.', '/')}.class", code)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    with os.fdopen(descriptor, "wb") as file:
        file.write(packed.getvalue())
    os.replace(temporary, path)
