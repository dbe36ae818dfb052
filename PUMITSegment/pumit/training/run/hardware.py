"""Hardware of a training, as its log and its model card name it."""

import platform
from pathlib import Path

import torch

_CPU_INFO = Path("/proc/cpuinfo")


def hardware_of(device: torch.device) -> str:
    """Return the training hardware, without the host name."""
    threads = torch.get_num_threads()
    if device.type == "cuda":
        return str(torch.cuda.get_device_properties(device).name)
    what = "" if device.type == "cpu" else f"{device.type}, "
    return f"{what}{threads} CPU thread{'s' if threads > 1 else ''} ({processor_title()})"


def processor_title() -> str:
    """Return the model name of this machine's CPU."""
    processor = platform.processor() or platform.machine()
    if _CPU_INFO.is_file():
        lines = _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
        models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        processor = models[0] if models else processor
    return processor
