"""Write tensors to a safetensors file, with the system's own errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file of tensors from any device.

    Raises:
        OSError: If the system refuses; its number is in the text of safetensors' own error, which
            is no OSError.
    """
    own: dict[str, Tensor] = {}
    places: set[int] = set()
    for name, tensor in tensors.items():
        # A file has no two names for one tensor, as networks with tied weights do.
        apart = tensor.detach().cpu().contiguous()
        own[name] = apart.clone() if apart.data_ptr() in places else apart
        places.add(apart.data_ptr())
    try:
        save_file(own, str(path), metadata=dict(metadata))
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]) if number else 0, str(error)) from None
