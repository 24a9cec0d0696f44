"""`python -m benchmarks.analytics`: rolling statistics, rates, trends, anomalies and comparisons, and Spark's own in turn."""

from __future__ import annotations

from benchmarks.analytics.kinds import anomaly, compared_to, rate, rolling, trend
from benchmarks.harness import main

PARTS = {"rolling": rolling, "rate": rate, "trend": trend, "anomaly": anomaly, "compared_to": compared_to}

if __name__ == "__main__":
    main("analytics", PARTS)
