"""The files of a checkpoint on a disk: each appears whole, under a name that is given once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.spark.checkpoint_files import OURS, SETTING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Files:
    """The class of Java, for one folder."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        java: Any = spark.sparkContext._jvm  # Any: py4j objects have no types
        self._java = java
        self._folder = folder
        settings = spark._jsparkSession.sessionState().newHadoopConf()
        self._files = java.headwater.CheckpointFiles(self._path(""), settings)

    def _path(self, name: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(str(self._folder / name))

    def begin(self, name: str, content: bytes, *, overwrite: bool = False) -> Any:
        stream = self._files.createAtomic(self._path(name), overwrite)
        stream.write(content)
        return stream

    def read(self, name: str) -> bytes:
        stream = self._files.open(self._path(name))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Files:
    return Files(spark, tmp_path)


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_of_two_writers_of_a_name_the_second_fails(files: Files, tmp_path: Path) -> None:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    first, second = files.begin("7", b"first"), files.begin("7", b"second")
    assert not (tmp_path / "7").exists(), "a file appears when it is whole"
    first.close()
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        second.close()
    assert files.read("7") == b"first"
    assert _names(tmp_path) == {"7"}


def test_a_file_may_be_replaced_whatever_was_said_of_the_earlier_one(files: Files, tmp_path: Path) -> None:
    files.begin("state", b"before").close()
    (tmp_path / ".state.crc").write_bytes(b"a checksum of Hadoop's, of other content")
    files.begin("state", b"after", overwrite=True).close()
    assert files.read("state") == b"after"
    assert _names(tmp_path) == {"state"}


def test_what_is_cancelled_leaves_nothing(files: Files, tmp_path: Path) -> None:
    stream = files.begin("8", b"half")
    stream.cancel()
    stream.close()
    assert _names(tmp_path) == set()


def test_a_session_writes_its_checkpoints_so_unless_told_otherwise(spark: SparkSession) -> None:
    assert spark.conf.get(SETTING) == OURS
