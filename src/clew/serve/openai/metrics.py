"""Counts and durations of a server in Prometheus' format. The server and its answers count here, and ``/metrics`` shows
the counts. No prompt, reply or key must ever appear here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from clew.core.errors import need
from clew.core.protocols import Model
from clew.core.values import Usage

SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """Counts requests and tokens of one server, beside what the engines of its models count, where they have one.

    Args:
        models: by name; the name tells their engines apart.

    Raises:
        MissingExtra: prometheus-client is not installed.
    """

    def __init__(self, models: Mapping[str, Model]) -> None:
        self._prometheus = need("prometheus_client", "serve")
        self.registry = self._prometheus.CollectorRegistry()
        count, time = self._prometheus.Counter, self._prometheus.Histogram
        here = {"registry": self.registry}
        self._requests = count("clew_requests", "Requests answered.", ("endpoint", "status"), **here)
        self._tokens = count("clew_tokens", "Tokens: of prompts, of these cached, and sampled.", ("kind",), **here)
        self._lost = count("clew_hung_up", "Clients that left, or read nothing, before their answer's end.", **here)
        self._first = time("clew_first_seconds", "Seconds until the first text.", buckets=SECONDS, **here)
        self._whole = time("clew_request_seconds", "Seconds of a whole request.", buckets=SECONDS, **here)
        self.busy = self._prometheus.Gauge("clew_choices_in_work", "Choices in work or waiting.", **here)
        self._engines = {name: model.engine for name, model in models.items() if hasattr(model, "engine")}
        of, gauge = ("what", "model"), self._prometheus.Gauge
        self._now = gauge("clew_engine", "What the engine does and holds now.", of, **here)
        self._so_far = gauge("clew_engine_counts", "What it has done so far.", of, **here)
        self._drafts = gauge("clew_drafts", "Drafted tokens by position.", (*of, "position"), **here)

    def request(self, endpoint: str, status: int, seconds: float) -> None:
        self._requests.labels(endpoint, str(status)).inc()
        if status == 200:
            self._whole.observe(seconds)

    def first(self, seconds: float) -> None:
        self._first.observe(seconds)

    def hung_up(self) -> None:
        self._lost.inc()

    def usage(self, usage: Usage) -> None:
        for kind, value in zip(("prompt", "sampled", "cached"), usage, strict=True):
            self._tokens.labels(kind).inc(value)

    def text(self) -> bytes:
        """All figures, those of the engines included, as Prometheus reads them."""
        for name, engine in self._engines.items():
            stats = engine.stats()
            for what, value in stats._asdict().items():
                if what != "counts":
                    self._now.labels(what, name).set(value)
            for what, value in asdict(stats.counts).items():
                if isinstance(value, list):
                    for position, count in enumerate(value):
                        self._drafts.labels(what, name, str(position + 1)).set(count)
                else:
                    self._so_far.labels(what, name).set(value)
        text: bytes = self._prometheus.generate_latest(self.registry)
        return text
