"""Metrics for Prometheus: counts, times and sizes, but nothing about users, scans or addresses.

Needs the optional package `prometheus-client`; `operations_routes` works without it.
"""

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict

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
from pumit.server.sessions.fair_queue import Kind, Outcome
from pumit.server.sessions.state import ServerState
from pumit.wire.protocol import API_VERSION, NNINTERACTIVE_VERSION

# Histogram buckets, from a click on a GPU to opening a large scan on few cores.
_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


class Metrics(Collector):
    """All metrics of one application, in their own registry; gauges are read at each scrape.

    Args:
        state: Callback that returns the server's state; None while it does not run.
        gauges: Callback that returns `ready`, `draining` and `requests_in_flight`.
    """

    CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(
        self, state: Callable[[], ServerState | None], gauges: Callable[[], Mapping[str, int]]
    ) -> None:
        self._state = state
        self._gauges = gauges
        registry = self._registry = CollectorRegistry()
        # Resident memory, CPU time and open files of this process, under Prometheus' usual names.
        ProcessCollector(registry=registry)
        registry.register(self)

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(f"pumit_{name}", meaning, labels, registry=registry)

        def seconds(name: str, meaning: str) -> Histogram:
            name = f"pumit_job_{name}_seconds"
            return Histogram(name, meaning, ("kind",), buckets=_SECONDS, registry=registry)

        self._jobs = counter("jobs", "Jobs of the queue.", "kind", "outcome")
        self._waiting = seconds("waiting", "From a job's request to its start.")
        self._running = seconds("running", "From a job's start to its end.")
        self._requests = counter("requests", "Requests by endpoint.", "route", "status")
        self._uploads = counter("uploads", "Array bodies received.")
        self._upload_bytes = counter("upload_bytes", "Bytes of array bodies, as sent.")

    def count_job(self, kind: Kind, waited_s: float, ran_s: float, outcome: Outcome) -> None:
        """Count a job that has ended."""
        self._jobs.labels(kind, outcome).inc()
        self._waiting.labels(kind).observe(waited_s)
        self._running.labels(kind).observe(ran_s)

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

    def collect(self) -> Iterable[Metric]:
        """Read the gauges."""
        build = {
            "version": __version__,
            "api_version": str(API_VERSION),
            "nninteractive_version": NNINTERACTIVE_VERSION,
            "python": platform.python_version(),
        }
        yield InfoMetricFamily("pumit_build", "This program.", build)
        state = self._state()
        if state is None:
            return
        now = self._gauges()
        yield InfoMetricFamily("pumit_model", "The served model.", asdict(state.engine.info))
        for name, meaning, value in (
            ("ready", "Whether a new session can be opened.", now["ready"]),
            ("draining", "Whether the server is shutting down.", now["draining"]),
            ("sessions_open", "Open sessions.", len(state.leases)),
            ("sessions_limit", "Maximum number of open sessions.", state.limits.max_sessions),
            ("queue_length", "Waiting jobs.", state.queue.waiting),
            ("requests_in_flight", "Requests not answered yet.", now["requests_in_flight"]),
        ):
            yield GaugeMetricFamily(f"pumit_{name}", meaning, value)
        memory = state.memory()
        held = {
            "scans": memory.scan_bytes,
            "embeddings": memory.embedding_bytes,
            "limit": memory.limit_bytes,
            "process": memory.process_bytes,
            "process_peak": memory.process_peak_bytes,
            "device_free": memory.device_free_bytes,
            "device_total": memory.device_total_bytes,
        }
        yield _labelled(
            GaugeMetricFamily("pumit_sessions", "Sessions with a volume.", labels=("state",)),
            {"awake": memory.awake, "asleep": memory.asleep},
        )
        yield _labelled(
            GaugeMetricFamily("pumit_memory_bytes", "Memory by use.", labels=("of",)),
            {name: size for name, size in held.items() if size is not None},
        )
        yield _labelled(
            CounterMetricFamily("pumit_leases_ended", "Leases ended.", labels=("reason",)),
            state.leases.ended,
        )


def _labelled(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, int]) -> Metric:
    for label, value in values.items():
        family.add_metric((label,), value)
    return family
