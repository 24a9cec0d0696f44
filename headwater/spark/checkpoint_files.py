"""The files of Spark's checkpoints: each appears whole, and of two writers of one name one fails.

Spark writes a temporary file and renames it, which falls short in two places. On `s3a://` a rename is a look, a copy and a deletion,
so that both of two drivers may believe that they have named the batch: with our class each file is one conditional put instead,
which is also a fifth of the requests. On a disk, Hadoop starts a process (`chmod`) for each file and for its checksum, four in each
micro-batch: our class creates the file, and links it to its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Spark's own class for file systems.
DEFAULT = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
OURS = "headwater.CheckpointFiles"
SETTING = "spark.sql.streaming.checkpointFileManagerClass"


def use_checkpoint_files(spark: SparkSession) -> None:
    """Let a session whose JVM has our classes write its checkpoints by ours, unless the setting names another one."""
    if spark.conf.get(SETTING, None) == DEFAULT:
        spark.conf.set(SETTING, OURS)
