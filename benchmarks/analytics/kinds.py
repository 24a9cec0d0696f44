"""The payments of the benchmark of windows, each with its past, beside sums per user and ten seconds by Spark.

In the whole run a user pays every two seconds of event time: a period of ten holds five rows. Spark has no streaming operator
that tells a row its past: its peer does less. It gives one row per user and window, ours (but for `ComparedTo`) each row
with more columns, and keeps the rows of the period in place of sums.
"""

from __future__ import annotations

from benchmarks.harness import Bench, Result
from benchmarks.windows.kinds import Operator, beside_native, compute
from headwater.operators import Anomaly, ComparedTo, Rate, Rolling, Trend, agg

PERIOD_SECONDS = 10


def rolling(bench: Bench) -> list[Result]:
    """Sums, which are taken off again; least and greatest values, which are not; and quantiles, which are sorted."""
    found = {
        "rolling.sum": compute(),
        "rolling.range": {"least": agg.min("amount"), "most": agg.max("amount")},
        "rolling.quantile": {"median": agg.percentile("amount", 0.5)},
    }
    subjects: dict[str, Operator] = {
        name: Rolling(period=PERIOD_SECONDS, time="at", by="user", compute=one, name=name)
        for name, one in found.items()
    }
    return beside_native(bench, "rolling", subjects)


def rate(bench: Bench) -> list[Result]:
    """Over a period, and with a half-life, of which a key remembers one number."""
    subjects: dict[str, Operator] = {
        "rate.period": Rate(time="at", by="user", of="amount", period=PERIOD_SECONDS, name="rate.period"),
        "rate.half_life": Rate(time="at", by="user", of="amount", half_life=PERIOD_SECONDS, name="rate.half_life"),
    }
    return beside_native(bench, "rate", subjects)


def trend(bench: Bench) -> list[Result]:
    """The line through the five values of a period."""
    operator = Trend(of="amount", time="at", by="user", period=PERIOD_SECONDS, horizon=PERIOD_SECONDS, name="trend")
    return beside_native(bench, "trend", {"trend": operator})


def anomaly(bench: Bench) -> list[Result]:
    """Each value beside the twenty before it, and beside as many as a user has, a hundred at most."""
    subjects: dict[str, Operator] = {
        "anomaly.memory_20": Anomaly(
            of="amount", time="at", by="user", memory=20, warm_up=10, name="anomaly.memory_20"
        ),
        "anomaly.memory_100": Anomaly(of="amount", time="at", by="user", name="anomaly.memory_100"),
    }
    return beside_native(bench, "anomaly", subjects)


def compared_to(bench: Bench) -> list[Result]:
    """Sums of ten seconds beside those of twenty, forty and sixty seconds earlier: two operators, one behind the other."""
    operator = ComparedTo(
        every=PERIOD_SECONDS, period=20, periods=3, time="at", by="user", compute=compute(), name="compared_to"
    )
    return beside_native(bench, "compared_to", {"compared_to": operator})
