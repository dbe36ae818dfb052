"""Automatic networks through OpenVINO, on x86 processors without bfloat16.

In single precision it takes less than half of PyTorch's time. To trace and compile a network takes
as long as a few windows of it, once per process.
"""

from __future__ import annotations

import logging
import os
import platform
import warnings
from collections.abc import Callable, Sequence
from threading import Lock

import torch
from torch import Tensor, nn

from pumit.inference.engine.choice import VARIABLE
from pumit.system.machine import usable_cores

logger = logging.getLogger(__name__)

# With fewer windows, PyTorch has finished before the network is compiled.
FEWEST_WINDOWS = 12
# Largest difference of outputs, relative to the largest output; both are in single precision.
_TOLERANCE = 1e-2


def suits_openvino(device: torch.device, precision: torch.dtype) -> bool:
    """Return whether OpenVINO is worth trying for a network."""
    if os.environ.get(VARIABLE, "").lower() == "torch":
        return False
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    return device.type == "cpu" and precision == torch.float32 and is_x86


def compiled(network: nn.Module, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
    """Return a function that computes a network for inputs of one shape with OpenVINO.

    It returns the first of several outputs. The network itself is returned if OpenVINO is absent,
    cannot convert it, or gives other numbers for input that was not traced.

    Args:
        network: In evaluation mode, in single precision on the CPU; its weights must not change.
        shape: Shape of the input, (1, C, d, h, w).
    """
    try:
        import openvino
        from openvino.frontend import FrontEndManager
        from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

        from pumit.inference.engine.openvino_engine import shared_core
    except ImportError:
        return network
    generator = torch.Generator().manual_seed(0)
    x, other = torch.rand(*shape, generator=generator), torch.randn(*shape, generator=generator)
    try:
        # 1. Trace and convert; `openvino.convert_model` would send usage statistics.
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # sizes become constants, as intended
            answer = network(other)
            traced = TorchScriptPythonDecoder(
                network, example_input=x, trace_kwargs={"check_trace": False}
            )
        frontend = FrontEndManager().load_by_framework("pytorch")
        model = frontend.load(traced)
        (given,) = model.get_inputs()
        model.set_partial_shape(given, openvino.PartialShape(list(shape)))
        model.set_element_type(given, openvino.Type.f32)
        # 2. Compile.
        properties = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": usable_cores(),
            "PERFORMANCE_HINT": "LATENCY",
            "ENABLE_CPU_PINNING": False,
        }
        graph = shared_core().compile_model(frontend.convert(model), "CPU", properties)
    except Exception as error:  # a network of any kind, in two other libraries
        logger.debug("OpenVINO cannot convert the network (%s).", type(error).__name__)
        return network
    request, in_use = graph.create_infer_request(), Lock()

    def compute(given: Tensor) -> Tensor:
        with in_use:
            found = request.infer({0: given.contiguous().numpy()}, share_inputs=True)[0]
            return torch.from_numpy(found)

    # 3. Compare for input that was not traced.
    expected: Tensor = answer[0] if isinstance(answer, (list, tuple)) else answer
    found = compute(other)
    if found.shape != expected.shape or not torch.allclose(
        found, expected, rtol=0, atol=_TOLERANCE * float(expected.abs().max())
    ):
        logger.debug("OpenVINO computes other numbers; PyTorch is used.")
        return network
    logger.info("The network is computed by OpenVINO.")
    return compute
