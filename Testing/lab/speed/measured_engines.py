"""Further inference engines for `bench_engines.py`; their libraries are optional."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any
from unittest import mock

import numpy as np
import torch
from pumit.inference.engine.encoder_graph import NetworkSizes
from pumit.inference.engine.engine import FieldPrompts, Floats
from pumit.inference.engine.openvino_engine import OpenVinoEngine
from pumit.inference.engine.torch_engine import TorchEngine
from pumit.networks.ba_sam import bias_mode_mask, length_scale
from pumit.networks.promptable.image_encoder import ImageEmbedding
from pumit.networks.promptable.network import PromptableNetwork
from pumit.networks.pumit import Anisotropy, eva
from torch import Tensor, nn

# Maps a degree of anisotropy to fields (3, D, H, W) with prompts, for the calibration of int8.
Calibration = Callable[[int], list[tuple[Floats, FieldPrompts]]]


class Int8Engine(OpenVinoEngine):
    """OpenVINO engine with both graphs quantised by NNCF, per degree on first use.

    `weights`, `sizes` and `threads` are those of `OpenVinoEngine`.

    Args:
        calibration: Returns the calibration fields of a degree.
    """

    name = "openvino int8"

    def __init__(
        self,
        weights: Mapping[str, Floats],
        sizes: NetworkSizes,
        calibration: Calibration,
        *,
        threads: int,
    ) -> None:
        self._exact = OpenVinoEngine(weights, sizes, threads=threads)
        self._calibration = calibration
        super().__init__(weights, sizes, threads=threads)

    def graphs(self, da0: int, shape: tuple[int, int, int]):  # type: ignore[no-untyped-def]
        """Return both graphs, quantised, and the names of their weights."""
        import nncf

        nncf.set_log_level("ERROR")
        encoder, decoder, names = super().graphs(da0, shape)
        if shape == (8, 8, 8):  # used only for tracing
            return encoder, decoder, names
        given = self._inputs(da0)
        quantised = [
            nncf.quantize(
                graph,
                nncf.Dataset([arrays[i] for arrays in given]),
                subset_size=len(given),
                preset=nncf.QuantizationPreset.MIXED,
            )
            for i, graph in enumerate((encoder, decoder))
        ]
        return quantised[0], quantised[1], names

    def _inputs(self, da0: int) -> list[tuple[dict[int, Floats], dict[int, Floats]]]:
        """Return the inputs of the exact engine's requests for each field."""
        found = []
        for image, prompts in self._calibration(da0):
            given: list[list[Floats]] = []
            with _recorded(given):
                features = self._exact.encode(image, da0=da0, slice_ratio=prompts.slice_ratio)
                self._exact.decode(features, prompts)
            encoder, decoder = given
            found.append((dict(enumerate(encoder)), dict(enumerate(decoder))))
        return found


class _recorded:  # noqa: N801
    """Record the inputs of every OpenVINO request."""

    def __init__(self, given: list[list[Floats]]) -> None:
        self._given = given

    def __enter__(self) -> None:
        from pumit.inference.engine import openvino_engine

        self._infer = openvino_engine._infer

        def run(request: Any, arrays: list[Floats]) -> list[Floats]:
            self._given.append([np.ascontiguousarray(a) for a in arrays])
            return self._infer(request, arrays)

        openvino_engine._infer = run

    def __exit__(self, *_: object) -> None:
        from pumit.inference.engine import openvino_engine

        openvino_engine._infer = self._infer


class OnnxEncoderEngine(TorchEngine):
    """Encoder in ONNX Runtime, with a graph per degree and shape; PyTorch decodes.

    Args:
        network: The network, on the CPU.
        threads: Threads of ONNX Runtime.
    """

    name = "onnxruntime"

    def __init__(self, network: PromptableNetwork, *, threads: int) -> None:
        super().__init__(network, torch.device("cpu"), torch.float32)
        self._threads = threads
        self._sessions: dict[tuple[int, ...], Any] = {}

    def encode(self, image: Floats, *, da0: int, slice_ratio: float) -> ImageEmbedding:
        """Encode a field; see `Engine`."""
        del slice_ratio
        key = (da0, *image.shape)
        session = self._sessions.get(key) or self._export(key, image[None])
        self._sessions[key] = session
        found = [torch.from_numpy(a) for a in session.run(None, {"image": image[None]})]
        full, half, quarter, tokens, *classes = found
        channels = torch.from_numpy(image)[None]
        return ImageEmbedding(channels, full, half, quarter, tokens, Anisotropy(da0), *classes)

    def _export(self, key: tuple[int, ...], image: Floats) -> Any:
        import onnxruntime

        buffer = BytesIO()
        with (
            mock.patch.object(eva, "ba_attention", _whole_attention),
            mock.patch.object(eva, "_complex_product", eva._real_product),
        ):
            torch.onnx.export(
                _Encoder(self.network, key[0]).eval(),
                (torch.from_numpy(image),),
                buffer,
                input_names=["image"],
                dynamo=False,
            )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        return onnxruntime.InferenceSession(
            buffer.getvalue(), options, providers=["CPUExecutionProvider"]
        )


def _whole_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    beta: Tensor,
    *,
    n_train: int,
    num_prefix_tokens: int,
) -> Tensor:
    """Compute `ba_attention` with the whole bias at once, which can be exported as a graph."""
    assert num_prefix_tokens == 0
    scale = length_scale(q.shape[2], n_train) / math.sqrt(q.shape[-1])
    scores = q @ k.transpose(-1, -2) + bias_mode_mask(positions.float(), beta)
    return (scale * scores).softmax(-1) @ v


class _Encoder(nn.Module):
    def __init__(self, network: PromptableNetwork, da0: int) -> None:
        super().__init__()
        self.network, self.da0 = network, da0

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        e = self.network.embed(image, Anisotropy(self.da0))
        found = (e.full, e.half, e.quarter, e.tokens)
        return found if e.classes is None else (*found, e.classes)
