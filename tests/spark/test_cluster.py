"""An app on a standalone Spark cluster, whose executors are other processes: its output is exact, whatever ends meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater as hw
from benchmarks.spark_cluster import spark_cluster
from headwater.apps.home import Home
from headwater.spark.cluster import PARTITIONS
from headwater.spark.session import spark_settings
from tests.conditions import until
from tests.spark.shop import FILE, append_orders, create_orders, expected, running, totals


def test_the_settings_of_a_cluster_are_those_of_its_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    monkeypatch.setenv("HEADWATER_TOKEN", "a token")
    settings = spark_settings("spark://127.0.0.1:7077", tmp_path, None, {})
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.sql.shuffle.partitions"] == str(PARTITIONS)
    assert settings["spark.executorEnv.HEADWATER_TOKEN"] == "a token"
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.1.2.3")
    assert spark_settings("spark://127.0.0.1:7077", tmp_path, None, {})["spark.driver.host"] == "10.1.2.3"
    monkeypatch.delenv("SPARK_LOCAL_IP")
    assert "spark.driver.host" not in spark_settings("yarn", tmp_path, None, {"spark.sql.shuffle.partitions": 4})


@pytest.mark.process
@pytest.mark.spark
def test_a_worker_that_is_killed_changes_nothing_in_the_output(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(FILE)
    with spark_cluster(tmp_path / "cluster") as cluster, hw.open(tmp_path / "data", create=True) as log:
        create_orders(log)
        append_orders(log, 0, 3_000)
        home = Home(tmp_path / "data" / "apps" / "shop")
        with running(tmp_path, cluster.url) as child:
            until(lambda: home.read_checkpoint("totals", 1).batch is not None, "a batch was committed", child)
            assert all(cluster.executors(worker) for worker in cluster.workers), "both workers take part"
            cluster.workers[0].kill()
            append_orders(log, 3_000, 6_000)
            until(lambda: home.read_checkpoint("totals", 1).rows_read >= 6_000, "all rows were read", child)
        assert child.returncode == 0
        assert totals(log) == expected(log)
