"""Signed webhooks in: requests of 32 connections, each answered when its row is durable; and rows over the server's HTTP API."""

from __future__ import annotations

import statistics

import headwater as hw
from benchmarks.gateway import senders
from benchmarks.gateway.children import child, gateway
from benchmarks.harness import Bench, Result
from benchmarks.server.children import server

ROUNDS = 3


def webhook_in(bench: Bench) -> list[Result]:
    count = bench.size(20_000, 500)
    rates, figures = [], {}
    for _ in range(bench.size(ROUNDS, 1)):
        with (
            bench.scratch("webhook") as folder,
            gateway(folder / "log", "webhook-in", port=0, secrets=senders.SECRET) as receiver,
            child("webhook", receiver.ask("start"), count, 0, module=senders.MODULE) as source,
        ):
            sent = source.ask("go")
            counters = receiver.ask("counters")
            if counters["appended"] != count:
                raise RuntimeError(f"{count} sent: {counters}")
            rates.append(sent["sent"] / sent["seconds"])
            figures = sent
    return [_result("webhook_in", rates, figures, "each is verified, and durable when it is answered; 32 connections")]


def http_one(bench: Bench) -> list[Result]:
    rates, figures = _rows(bench, "rows", bench.size(20_000, 500))
    return [_result("http.one", rates, figures, "a row in each request of the server's API; 32 connections")]


def http_batch(bench: Bench) -> list[Result]:
    rates, figures = _rows(bench, "batch", bench.size(1_000, 50))
    note = "1,000 rows in each request, p99 of a request; 32 connections"
    return [_result("http.batch", [1_000 * rate for rate in rates], figures, note)]


def _rows(bench: Bench, kind: str, count: int) -> tuple[list[float], dict[str, float]]:
    rates, figures = [], {}
    for _ in range(bench.size(ROUNDS, 1)):
        with bench.scratch("http") as folder:
            with hw.open(folder / "log") as log:
                log.create("rows", "id int64, note string")
            with (
                server(folder / "log") as address,
                child(kind, f"{address}/api/v1/topics/rows/rows", count, 0, module=senders.MODULE) as source,
            ):
                sent = source.ask("go")
                rates.append(sent["sent"] / sent["seconds"])
                figures = sent
    return rates, figures


def _result(name: str, rates: list[float], figures: dict[str, float], note: str) -> Result:
    rate = statistics.median(rates)
    return Result(name=name, value=rate, unit="events/s", p50=figures["p50"], p99=figures["p99"], note=note)
