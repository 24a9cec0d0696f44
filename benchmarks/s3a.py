"""The jars by which Spark keeps its checkpoint in an object store, fetched once into a folder of the user's cache."""

from __future__ import annotations

from pathlib import Path

from benchmarks.maven import fetched, named_by, spark_jars

POM = Path(__file__).parents[1] / "deploy" / "spark" / "pom.xml"


def s3a_jars() -> str:
    """The value of `spark.jars`; raise `PeerUnavailable` if the jars are neither here nor to be had by Maven."""
    pom = POM.read_text()
    return spark_jars(fetched(named_by("s3a", pom), pom, what="Spark's jars for s3a://"))
