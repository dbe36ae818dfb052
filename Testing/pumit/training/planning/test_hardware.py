"""What a machine offers is read from the system."""

from __future__ import annotations

import torch
from pumit.training.planning.estimate import Hardware, hardware_for


def test_this_machine_is_described() -> None:
    found = hardware_for(torch.device("cpu"))
    assert found.kind == "cpu"
    assert found.cores >= 1
    assert found.memory_bytes is not None
    assert found.memory_bytes > 1 << 20
    assert str(found).endswith(("core", "cores"))
    gpu = Hardware(8, None, torch.device("cuda:0"), "A GPU", 1 << 30)
    assert (gpu.kind, str(gpu)) == ("gpu", "A GPU, 8 CPU cores")
