"""Devices and models of this machine: `python -m pumit.client.availability` prints them as JSON.

For a viewer, which does not import torch or the model index.
"""

import json
import sys
from dataclasses import asdict
from typing import Any


def availability() -> dict[str, Any]:
    """Return the devices and models with which a worker can be started on this machine.

    Returns:
        `devices`, with the fields of `pumit.inference.devices.Device`, and `models`, with `name`,
        `kind`, `description`, `licence` and `is_here`.

    Raises:
        CheckpointError: If a model index is damaged.
    """
    from pumit.inference.devices import list_devices
    from pumit.models.index import list_models

    models = [
        {
            "name": entry.name,
            "kind": entry.kind,
            "description": entry.description,
            "licence": entry.licence,
            "is_here": entry.path.is_file(),
        }
        for entry in list_models()
    ]
    return {"devices": [asdict(device) for device in list_devices()], "models": models}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(availability()) + "\n")
