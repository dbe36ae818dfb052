"""Write safetensors files, with errors as OSError."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors from any device to a safetensors file.

    Raises:
        OSError: If writing fails; safetensors raises its own error with the errno in its text.
    """
    own: dict[str, Tensor] = {}
    places: set[int] = set()
    for name, tensor in tensors.items():
        # safetensors does not allow tied weights, two names for one tensor.
        apart = tensor.detach().cpu().contiguous()
        own[name] = apart.clone() if apart.data_ptr() in places else apart
        places.add(apart.data_ptr())
    try:
        save_file(own, str(path), metadata=dict(metadata))
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]) if number else 0, str(error)) from None
