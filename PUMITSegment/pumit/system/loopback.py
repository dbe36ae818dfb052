"""Detection of loopback addresses."""

import contextlib
import ipaddress


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address or "localhost"; other names are not resolved."""
    if host.lower() == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False
