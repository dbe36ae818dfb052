"""Whether an address is this machine's own."""

from __future__ import annotations

import contextlib
import ipaddress


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine only; unknown names are outside."""
    if host.lower() == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False
