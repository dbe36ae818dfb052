"""Engines that are measured along with those that ship, where their libraries are installed."""

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
from pumit.inference.engine.torch_engine import TorchEngine, TorchFeatures
from pumit.networks.ba_sam import bias_mode_mask, length_scale
from pumit.networks.promptable.image_encoder import ImageEmbedding
from pumit.networks.promptable.network import PromptableNetwork
from pumit.networks.pumit import Anisotropy, eva, rope
from torch import Tensor, nn

# Of a degree of anisotropy: fields (3, D, H, W) with prompts, to choose the scales of int8 from.
Calibration = Callable[[int], list[tuple[Floats, FieldPrompts]]]


class Int8Engine(OpenVinoEngine):
    """OpenVINO with both graphs quantised by NNCF after training, a degree when it is requested.

    Args:
        weights: See `OpenVinoEngine`.
        sizes: See `OpenVinoEngine`.
        calibration: Fields of a degree.
        threads: See `OpenVinoEngine`.
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
        """Both graphs, quantised, and the names of their weights."""
        import nncf

        nncf.set_log_level("ERROR")
        encoder, decoder, names = super().graphs(da0, shape)
        if shape == (8, 8, 8):  # only traced
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
        """What the exact engine's requests were given for each field, by input."""
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
    """Note what every request of OpenVINO is given."""

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
    """The encoder in ONNX Runtime, a graph for each degree and shape; PyTorch decodes.

    Args:
        network: The network, on the CPU.
        threads: Of ONNX Runtime.
    """

    name = "onnxruntime"

    def __init__(self, network: PromptableNetwork, *, threads: int) -> None:
        super().__init__(network, torch.device("cpu"), torch.float32)
        self._threads = threads
        self._sessions: dict[tuple[int, ...], Any] = {}

    def encode(self, image: Floats, *, da0: int, slice_ratio: float) -> TorchFeatures:
        """Encode a field; see `Engine`."""
        del slice_ratio
        key = (da0, *image.shape)
        session = self._sessions.get(key) or self._export(key, image[None])
        self._sessions[key] = session
        found = [torch.from_numpy(a) for a in session.run(None, {"image": image[None]})]
        full, half, quarter, tokens, *classes = found
        channels = torch.from_numpy(image)[None]
        return TorchFeatures(
            ImageEmbedding(channels, full, half, quarter, tokens, Anisotropy(da0), *classes)
        )

    def _export(self, key: tuple[int, ...], image: Floats) -> Any:
        import onnxruntime

        buffer = BytesIO()
        with (
            mock.patch.object(eva, "ba_attention", _whole_attention),
            mock.patch.object(rope, "_complex_product", rope._real_product),
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
    """`ba_attention` with its whole bias at once, which has a graph."""
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
