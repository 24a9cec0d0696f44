"""Spark's checkpoint in an object store, guarded against two drivers of one query.

A checkpoint says which rows belong to a batch, and counts on it that of two writers of a file's name one fails. Spark writes a
temporary file and renames it. On `s3a://` a rename is a look, a copy and a deletion, so that both of two drivers may believe
that they have named the batch. Here each file is one conditional put instead, which is also a fifth of the requests.

Spark takes such a thing as a Java class only. It is compiled by the compiler that Spark brings (Janino), once, into a jar in the
cache folder; only sessions that have Hadoop's `s3a://` do so.
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

#: The class of files on disk and on file systems that rename in one step.
DEFAULT = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
GUARDED = "headwater.ObjectCheckpoints"
SETTING = "spark.sql.streaming.checkpointFileManagerClass"
_SOURCE = Path(__file__).with_name("ObjectCheckpoints.java")
_STORE = "org.apache.hadoop.fs.s3a.S3AFileSystem"


def guard_checkpoints(spark: SparkSession) -> bool:
    """Let a session write checkpoints at `s3a://` by conditional puts; return whether it does.

    It does not where Hadoop's `s3a://` is not among its jars, or where the setting names another class.
    """
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

    chosen = spark.conf.get(SETTING, None)
    if chosen != DEFAULT:
        return chosen == GUARDED
    # Any: py4j objects have no types.
    java: Any = spark.sparkContext._jvm
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        java.java.lang.Class.forName(_STORE, False, loader)
    except Py4JJavaError:
        return False
    jar = _jar(java, loader, release=spark.version)
    try:
        loader.addURL(java.java.io.File(str(jar)).toURI().toURL())
    except Py4JError:  # a program that has started the JVM in its own way
        return False
    if not is_local(str(spark.sparkContext.master)):  # executors write the state of Spark's own operators
        spark.sparkContext._jsc.addJar(str(jar))
    spark.conf.set(SETTING, GUARDED)
    return True


# Any: py4j objects have no types.
def _jar(java: Any, loader: Any, *, release: str) -> Path:
    """The jar in the cache folder, compiled if it is not there."""
    source = _SOURCE.read_text(encoding="utf-8")
    key = hashlib.sha256(f"{release}\n{source}".encode()).hexdigest()[:12]
    path = cache_folder() / f"checkpoints-{key}.jar"
    if not path.exists():
        compiler = java.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(source)
        classes = {str(name): bytes(code) for name, code in compiler.getBytecodes().items()}
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
