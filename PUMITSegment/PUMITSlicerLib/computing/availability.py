"""List of available devices and models, read by a subprocess so that torch is not imported here."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from pumit.errors import ServiceError
from slicer.i18n import tr as _

from PUMITSlicerLib.computing.python_executable import SLICER_PYTHON, SlicerPython, without_window

# Importing torch from a cold disk is slow.
_TIMEOUT_S = 180.0
_GB = 1e9


@dataclass(frozen=True)
class AvailableDevice:
    """Device that the user can choose."""

    name: str
    title: str


@dataclass(frozen=True)
class AvailableModel:
    """Model that the user can choose.

    Attributes:
        kind: `promptable`, `automatic` or `tokenizer`.
        licence: Licence of the weights.
    """

    name: str
    kind: str
    description: str
    isHere: bool
    licence: str = ""


@dataclass(frozen=True)
class Availability:
    """Devices and models of this machine."""

    devices: tuple[AvailableDevice, ...]
    models: tuple[AvailableModel, ...]


def read_availability(python: SlicerPython = SLICER_PYTHON) -> Availability:
    """List devices and models in a subprocess; takes seconds, so call it on a thread.

    Raises:
        ServiceError: If they cannot be listed.
    """
    module = "pumit.client.availability"
    try:
        run = subprocess.run(
            python.command(module),
            env=python.variables(module),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=True,
            **without_window(),
        )
        answer = json.loads(run.stdout.decode("utf-8").splitlines()[-1])
        return Availability(
            tuple(AvailableDevice(d["name"], _title(d)) for d in answer["devices"]),
            tuple(
                AvailableModel(m["name"], m["kind"], m["description"], m["is_here"], m["licence"])
                for m in answer["models"]
            ),
        )
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError) as error:
        raise ServiceError(
            _("Devices and models cannot be listed ({kind}); automatic choice still works.").format(
                kind=type(error).__name__
            )
        ) from error


def _title(device: Mapping[str, object]) -> str:
    name, memory = str(device["name"]), device["memory_bytes"]
    if name == "cpu":
        return _("Processor")
    title = str(device["title"]) or (_("Apple GPU") if name == "mps" else name)
    if not isinstance(memory, (int, float)):
        return f"{title} ({name})"
    return _("{title}, {size:.0f} GB ({name})").format(title=title, size=memory / _GB, name=name)
