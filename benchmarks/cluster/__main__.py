"""`python -m benchmarks.cluster`: executors of a standalone cluster, state and checkpoint in an object store, fail-over, sizes."""

from __future__ import annotations

from benchmarks.cluster.executors import executors
from benchmarks.cluster.failover import failover
from benchmarks.cluster.sizes import disk, queries
from benchmarks.cluster.store import store
from benchmarks.harness import main

PARTS = {"executors": executors, "store": store, "failover": failover, "queries": queries, "disk": disk}

if __name__ == "__main__":
    main("cluster", PARTS)
