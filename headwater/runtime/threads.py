"""Threads that talk to Spark: the connection that each one gets is closed when it ends."""

from __future__ import annotations

import threading


class SparkThread(threading.Thread):
    """A thread whose connection to the JVM ends with it; py4j alone would leave it open."""

    def run(self) -> None:
        try:
            super().run()
        finally:
            close_connection()


def close_connection() -> None:
    """Close the connection of this thread to the JVM, if it has one."""
    from pyspark import InheritableThread, SparkContext

    if SparkContext._gateway is not None and SparkContext._jvm is not None:
        InheritableThread._clean_py4j_conn_for_current_thread()
