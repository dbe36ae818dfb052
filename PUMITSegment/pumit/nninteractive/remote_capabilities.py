"""The capabilities of an nnInteractive server."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pumit.errors import ServiceError

# Value of `kind` in `Client.capabilities`.
NNINTERACTIVE = "nninteractive"
# Leases came with version 2; other major versions are not supported.
_MAJOR_VERSION = "2"
# The server's value if its model's folder states no licence.
_NO_LICENSE = "!!MISSING!!"
_LONGEST = 200
_THICKEST = 32  # voxels; a brush of a billion would fill the memory


@dataclass(frozen=True)
class RemoteCapabilities:
    """Capabilities of one nnInteractive server.

    Attributes:
        license: Licence of the model as the server states it; None if not stated.
        interactions: Supported ones of `points`, `bbox2d`, `bbox3d`, `scribble`, `lasso`.
        scribble_thickness: Thickness of scribbles, voxels along (D, H, W).
    """

    version: str
    license: str | None
    interactions: frozenset[str]
    takes_mask: bool
    scribble_thickness: tuple[int, int, int]
    can_undo: bool

    def capabilities(self) -> dict[str, Any]:
        """Return the dictionary for `Client.capabilities`."""
        return {
            "kind": NNINTERACTIVE,
            "version": self.version,
            "model": {"name": "nnInteractive", "version": self.version},
            "models": [],
            "license": self.license,
            "prompts": sorted(self.interactions),
            "answers": ["mask"],
        }


def read_remote_capabilities(answer: Mapping[str, Any], url: str) -> RemoteCapabilities:
    """Parse the answer of `/capabilities`.

    Raises:
        ServiceError: If the server is not nnInteractive, or has another major version.
    """
    supported, version = (
        answer.get("supported_interactions"),
        answer.get("inference_session_version"),
    )
    if not isinstance(supported, Mapping) or not isinstance(version, str):
        raise ServiceError(
            f"The server at {url} is neither a PUMIT nor an nnInteractive server; check the "
            "address and its version."
        )
    if version.partition(".")[0] != _MAJOR_VERSION:
        raise ServiceError(
            f"The server at {url} runs nnInteractive {one_line(version)}; this program knows "
            f"version {_MAJOR_VERSION}. Update the older of the two."
        )
    license_name = answer.get("license")
    license_name = one_line(license_name) if isinstance(license_name, str) else None
    if license_name in ("", _NO_LICENSE):
        license_name = None
    return RemoteCapabilities(
        one_line(version),
        license_name,
        frozenset(str(name) for name, is_taken in supported.items() if is_taken),
        bool(answer.get("supports_initial_label", True)),
        _thickness(answer.get("preferred_scribble_thickness")),
        # Earlier servers omit the key and have no undo.
        bool(answer.get("supports_undo", False)),
    )


def one_line(text: str) -> str:
    """Shorten another program's text to one line for a message."""
    words = " ".join(text.split())
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 3]}..."


def _thickness(answer: object) -> tuple[int, int, int]:
    """Parse one number or three; the default is the thinnest scribble."""
    try:
        given = [answer] * 3 if isinstance(answer, (int, float)) else list(answer)  # type: ignore[call-overload]
        d, h, w = (min(max(1, round(float(value))), _THICKEST) for value in given)
    except (TypeError, ValueError, OverflowError):
        return (1, 1, 1)
    return (d, h, w)
