"""Metrics for Prometheus: counts, times and sizes, but nothing about users, scans or addresses.

Needs the optional package `prometheus-client`; `operations_routes` works without it.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pumit import __version__
from pumit.server.sessions.engine import ModelInfo
from pumit.server.sessions.fair_queue import Done
from pumit.wire.protocol import API_VERSION, NNINTERACTIVE_VERSION

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Histogram buckets, from a click on a GPU to opening a large scan on few cores.
_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


@dataclass(frozen=True)
class Snapshot:
    """State of a server at one moment.

    Attributes:
        is_ready: Whether a new session could be opened.
        in_flight: Number of requests not answered yet.
        sleep: Number of sessions with a volume, `awake` and `asleep`.
        memory_bytes: Memory by use: `scans`, `embeddings`, `process`, ...
        leases_ended: Number of leases ended since the start, by reason.
    """

    is_ready: bool
    is_draining: bool
    sessions: int
    session_limit: int
    queue_length: int
    in_flight: int
    model: ModelInfo
    sleep: Mapping[str, int]
    memory_bytes: Mapping[str, int]
    leases_ended: Mapping[str, int]


class Metrics:
    """All metrics of one application, in their own registry.

    Args:
        snapshot: Callback that returns the server's state; None while it does not run.
    """

    def __init__(self, snapshot: Callable[[], Snapshot | None]) -> None:
        registry = self._registry = CollectorRegistry()
        # Resident memory, CPU time and open files of this process, under Prometheus' usual names.
        ProcessCollector(registry=registry)
        registry.register(_Gauges(snapshot))
        self._jobs = Counter(
            "pumit_jobs", "Jobs of the queue.", ("kind", "outcome"), registry=registry
        )
        self._waiting = Histogram(
            "pumit_job_waiting_seconds",
            "From a job's request to its start.",
            ("kind",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._running = Histogram(
            "pumit_job_running_seconds",
            "From a job's start to its end.",
            ("kind",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._requests = Counter(
            "pumit_requests", "Requests by endpoint.", ("route", "status"), registry=registry
        )
        self._uploads = Counter("pumit_uploads", "Array bodies received.", registry=registry)
        self._upload_bytes = Counter(
            "pumit_upload_bytes", "Bytes of array bodies, as sent.", registry=registry
        )

    def count_job(self, done: Done) -> None:
        """Count a job that has ended."""
        self._jobs.labels(done.kind, done.outcome).inc()
        self._waiting.labels(done.kind).observe(done.waited_s)
        self._running.labels(done.kind).observe(done.ran_s)

    def count_request(self, route: str, status: str) -> None:
        """Count a request by its route template, never by the path that the client sent."""
        self._requests.labels(route, status).inc()

    def count_upload(self, size: int) -> None:
        """Count an array body of `size` bytes."""
        self._uploads.inc()
        self._upload_bytes.inc(size)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class _Gauges(Collector):
    """Gauges read at each scrape."""

    def __init__(self, snapshot: Callable[[], Snapshot | None]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        yield InfoMetricFamily(
            "pumit_build",
            "This program.",
            {
                "version": __version__,
                "api_version": str(API_VERSION),
                "nninteractive_version": NNINTERACTIVE_VERSION,
                "python": platform.python_version(),
            },
        )
        now = self._snapshot()
        if now is None:
            return
        model = now.model
        yield InfoMetricFamily(
            "pumit_model",
            "The served model.",
            {
                "name": model.name,
                "version": model.version,
                "sha256": model.sha256,
                "device": model.device,
            },
        )
        for name, meaning, value in (
            ("ready", "Whether a new session can be opened.", now.is_ready),
            ("draining", "Whether the server is shutting down.", now.is_draining),
            ("sessions_open", "Open sessions.", now.sessions),
            ("sessions_limit", "Maximum number of open sessions.", now.session_limit),
            ("queue_length", "Waiting jobs.", now.queue_length),
            ("requests_in_flight", "Requests not answered yet.", now.in_flight),
        ):
            yield GaugeMetricFamily(f"pumit_{name}", meaning, value)
        yield _labelled(
            GaugeMetricFamily("pumit_sessions", "Sessions with a volume.", labels=("state",)),
            now.sleep,
        )
        yield _labelled(
            GaugeMetricFamily("pumit_memory_bytes", "Memory by use.", labels=("of",)),
            now.memory_bytes,
        )
        yield _labelled(
            CounterMetricFamily("pumit_leases_ended", "Leases ended.", labels=("reason",)),
            now.leases_ended,
        )


def _labelled(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, int]) -> Metric:
    for label, value in values.items():
        family.add_metric((label,), value)
    return family
