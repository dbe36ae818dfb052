"""Automatic networks through OpenVINO, on x86 processors without bfloat16.

In single precision it takes about half of PyTorch's time. To trace and compile a network takes as
long as 3 to 18 of its windows, once per process.
"""

import logging
import os
import platform
import warnings
from collections.abc import Sequence
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from pumit.inference.engine.choice import VARIABLE

logger = logging.getLogger(__name__)

# With fewer windows, compiling takes longer than it saves for many networks.
FEWEST_WINDOWS = 12
# Largest difference of outputs, relative to the largest output; both are in single precision.
_TOLERANCE = 1e-2


def suits_openvino(device: torch.device, precision: torch.dtype) -> bool:
    """Return whether OpenVINO is worth trying for a network."""
    if os.environ.get(VARIABLE, "").lower() == "torch":
        return False
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    return device.type == "cpu" and precision == torch.float32 and is_x86


class CompiledNetwork:
    """A network compiled for one shape of input; called like the network, returns one output."""

    def __init__(self, graph: Any) -> None:
        self._graph, self._in_use = graph, Lock()
        self._request = graph.create_infer_request()

    def __call__(self, x: Tensor) -> Tensor:
        """Compute one window."""
        with self._in_use:
            found = self._request.infer({0: x.contiguous().numpy()}, share_inputs=True)[0]
            return torch.from_numpy(found)

    def release(self) -> None:
        """Release working memory; the next window allocates it again."""
        with self._in_use:
            self._graph.release_memory()


def compiled(network: nn.Module, shape: Sequence[int]) -> CompiledNetwork | None:
    """Compile a network with OpenVINO, or return None.

    None if OpenVINO is absent, cannot convert the network, or gives other numbers for input that
    was not traced. Of several outputs, the first is computed.

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
        return None
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
        # 2. Compile, for as many cores as PyTorch would use.
        properties = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "PERFORMANCE_HINT": "LATENCY",
            "ENABLE_CPU_PINNING": False,
        }
        graph = shared_core().compile_model(frontend.convert(model), "CPU", properties)
        # 3. Compare for input that was not traced.
        fast = CompiledNetwork(graph)
        found = fast(other)
    except Exception as error:  # a network of any kind, in two other libraries
        logger.debug("OpenVINO cannot compute the network (%s).", type(error).__name__)
        return None
    expected: Tensor = answer[0] if isinstance(answer, (list, tuple)) else answer
    if found.shape != expected.shape or not torch.allclose(
        found, expected, rtol=0, atol=_TOLERANCE * float(expected.abs().max())
    ):
        logger.debug("OpenVINO computes other numbers; PyTorch is used.")
        return None
    logger.info("The network is computed by OpenVINO.")
    return fast
