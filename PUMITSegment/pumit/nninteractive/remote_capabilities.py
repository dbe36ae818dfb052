"""The capabilities of an nnInteractive server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pumit.errors import ServiceError

# Under `kind` of `Client.capabilities`.
NNINTERACTIVE = "nninteractive"
# The protocol with leases came with 2; of another one no one knows what it will mean.
_MAJOR_VERSION = "2"
# What the server writes where its model's folder tells no licence.
_NO_LICENSE = "!!MISSING!!"
_LONGEST = 200


@dataclass(frozen=True)
class RemoteCapabilities:
    """Capabilities of one nnInteractive server.

    Attributes:
        license: Licence of its model in the server's words; None where it tells none.
        interactions: Those of `points`, `bbox2d`, `bbox3d`, `scribble`, `lasso` that it takes.
        takes_mask: Whether a mask to start from can be given.
        scribble_thickness: Thickness of drawn scribbles, voxels along (D, H, W).
        can_undo: Whether its last interaction can be undone.
    """

    version: str
    license: str | None
    interactions: frozenset[str]
    takes_mask: bool
    scribble_thickness: tuple[int, int, int]
    can_undo: bool

    def capabilities(self) -> dict[str, Any]:
        """As `Client.capabilities` tells it."""
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
    """Read the answer of `/capabilities`.

    Args:
        answer: The answer of `/capabilities`.
        url: Address of the server, for the sentence.

    Raises:
        ServiceError: If it is no nnInteractive server, or one of another version.
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
        # Earlier servers do not tell it, and have no undo.
        bool(answer.get("supports_undo", False)),
    )


def one_line(text: str) -> str:
    """Text of another program, shortened to a line of a message."""
    words = " ".join(text.split())
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 3]}..."


def _thickness(answer: object) -> tuple[int, int, int]:
    """One number or three; a server that tells neither gets the thinnest scribble."""
    try:
        given = [answer] * 3 if isinstance(answer, (int, float)) else list(answer)  # type: ignore[call-overload]
        d, h, w = (max(1, round(float(value))) for value in given)
    except (TypeError, ValueError):
        return (1, 1, 1)
    return (d, h, w)
