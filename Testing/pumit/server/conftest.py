"""A server on loopback, workers, and a scan to send to them."""

from serving import fake_worker, server, serving, volume  # noqa: F401
