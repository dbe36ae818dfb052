"""The promptable network in OpenVINO: on CPUs, without PyTorch.

The graph is made from the weights themselves for each degree and shape of fields and compiled in a
third of a second; for those of a first click while the scan is opened. So nothing is exported and
nothing is cached on a disk that could be damaged, stale or of other weights, and a model that was
fine-tuned or imported needs no more than its checkpoint.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
import openvino
from openvino import opset15 as ops

from pumit.errors import CheckpointError
from pumit.inference.engine.decoder_graph import decoder_graph
from pumit.inference.engine.encoder_graph import NetworkSizes, encoder_graph, token_distances
from pumit.inference.engine.engine import FieldPrompts, Floats, R, Shape, T
from pumit.inference.engine.graph_layers import GraphLayers, grids
from pumit.inference.engine.prompt_maps import MapGrid, class_vectors_at, prompt_maps
from pumit.inference.engine.prompt_tokens import PromptTokens
from pumit.models.checkpoint import ModelHeader
from pumit.networks.build import PROMPTABLE
from pumit.system.machine import usable_cores

# Weights that are used by `PromptTokens` and stand in no graph.
_OF_PROMPTS = (
    "prompt_encoder.",
    "mask_decoder.iou_token.",
    "mask_decoder.mask_tokens.",
    "prototypes.",  # of training alone
)
# Degrees and depths that are kept compiled; one scan asks for about four.
MOST_COMPILED = 12
_Grid = tuple[int, Shape]  # degree and shape


@cache
def shared_core() -> openvino.Core:
    """OpenVINO's core: one for the whole process, which is never given back.

    On Linux the CPU plugin of each core gives its thread a stack for signal handlers, and takes it
    away with the core. Cores that end in the order in which they began leave the thread with a
    stack that was unmapped already, and the next signal (a child that ended, SIGTERM) kills the
    process without a word.
    """
    return openvino.Core()


def sizes_of(recipe: Mapping[str, Any]) -> NetworkSizes:
    """Sizes of the network that a recipe names.

    Raises:
        CheckpointError: If it is none that the graphs are written for.
    """
    try:
        header = ModelHeader.of(recipe)
        if header.network != "promptable":
            raise ValueError
        sizes = NetworkSizes(**{**PROMPTABLE, **header.sizes})
        widths = tuple(int(n) for n in sizes.widths)
        return replace(sizes, widths=(widths[0], widths[1], widths[2]))
    except (IndexError, TypeError, ValueError):
        raise CheckpointError("There is no graph of a network of these sizes.") from None


@dataclass(frozen=True)
class GraphFeatures:
    """What the encoder leaves of a field, and what is known of its maps before any prompt.

    Attributes:
        full: Features at full resolution.
        half: The image's part of those at 1/2 resolution.
        quarter: The image's part of those at 1/4 resolution.
        tokens: Features of the transformer.
        places: Position codes of the tokens, (1, N, dim).
        maps: Grid of the prompt maps.
        classes: Class vectors at 1/2 resolution, (E, d, h, w), or None.
        da0: Degree of anisotropy.
    """

    full: Floats
    half: Floats
    quarter: Floats
    tokens: Floats
    places: Floats
    maps: MapGrid
    classes: Floats | None
    da0: int

    @property
    def nbytes(self) -> int:
        """What it takes in memory, bytes."""
        arrays = [self.full, self.half, self.quarter, self.tokens, self.places]
        arrays += [] if self.classes is None else [self.classes]
        return sum(array.nbytes for array in arrays) + self.maps.nbytes


@dataclass(frozen=True)
class _Compiled:
    """Both steps for one degree and one shape of fields.

    Attributes:
        encoder: Compiled, with its request.
        decoder: The same.
        distances: Between tokens, (1, 1, N, N).
    """

    encoder: tuple[Any, Any]
    decoder: tuple[Any, Any]
    distances: Floats

    def release(self) -> None:
        """Give back what is computed in; the next computation takes it again."""
        for graph, _ in (self.encoder, self.decoder):
            graph.release_memory()


class OpenVinoEngine:
    """Compute with OpenVINO on the CPU.

    The arithmetic is single precision whatever the CPU could do faster, so that answers do not
    depend on its model. Threads are not bound to cores, where other programs may be.

    Args:
        weights: Weights of a promptable network, by name.
        sizes: Sizes of its recipe.
        threads: Number of cores to use; None for all that this process may.
        precision: "f32"; "bf16" computes faster and less exactly where the CPU can, for
            measurements.

    Raises:
        CheckpointError: If the weights are those of another network.
        RuntimeError: If OpenVINO refuses the CPU.
    """

    name = "openvino"
    device = "cpu"

    def __init__(
        self,
        weights: Mapping[str, Floats],
        sizes: NetworkSizes,
        *,
        threads: int | None = None,
        precision: str = "f32",
    ) -> None:
        self._weights = weights
        self._sizes = sizes
        self._core = shared_core()
        self._properties = {
            "INFERENCE_PRECISION_HINT": precision,
            "INFERENCE_NUM_THREADS": threads or usable_cores(),
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "ENABLE_CPU_PINNING": False,
            # Fusing by generated kernels takes longer than it saves in graphs of this size.
            "SNIPPETS_MODE": "DISABLE",
        }
        self._compiled: OrderedDict[_Grid, _Compiled] = OrderedDict()
        # One graph on each core: compiling uses no more.
        self._compiling = ThreadPoolExecutor(threads or usable_cores(), "pumit-compile")
        self._prepared: dict[_Grid, Future[_Compiled]] = {}
        self._lock = Lock()  # a request computes one answer at a time
        self._try_out()
        try:
            self._tokens = PromptTokens(weights, sizes.field_size)
            self._check()
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError("The weights do not fit the network that they name.") from error

    @property
    def field_size(self) -> int:
        """In-plane voxels of a training field."""
        return self._sizes.field_size

    def map(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Apply a function to fields, one after the other; see `Engine`."""
        return [work(item) for item in items]

    def prepare(self, grids: Iterable[_Grid]) -> None:
        """Compile for fields to come; see `Engine`."""
        with self._lock:
            for grid in grids:
                if grid not in self._compiled and grid not in self._prepared:
                    self._prepared[grid] = self._compiling.submit(self._compile_both, *grid)
            for grid in list(self._prepared)[:-MOST_COMPILED]:  # of scans that nobody clicked on
                self._prepared.pop(grid).cancel()

    def encode(self, image: Floats, *, da0: int, slice_ratio: float) -> GraphFeatures:
        """Encode a field; see `Engine`."""
        d, h, w = image.shape[1:]
        shape = (d, h, w)
        _, at_half, _, at_tokens = grids(shape, da0)
        maps = MapGrid.of(image[:2], at_half, slice_ratio, geodesic=self._sizes.geodesic)
        coarse = MapGrid(shape, at_tokens, image[:0], [])
        places = self._tokens.of_grid(coarse, slice_ratio)[None]
        with self._lock:
            compiled = self._of(da0, shape)
            results = _run(compiled.encoder[1], [image[None], compiled.distances])
        full, half, quarter, tokens = results[:4]
        classes = results[4][0] if self._sizes.class_channels else None
        return GraphFeatures(full, half, quarter, tokens, places, maps, classes, da0)

    def decode(self, features: GraphFeatures, prompts: FieldPrompts) -> tuple[Floats, Floats]:
        """Answer prompts; see `Engine`."""
        shape = features.maps.full
        classes = features.classes
        maps = prompt_maps(prompts, features.maps, self.field_size, classes)[None]
        vectors = None
        if classes is not None:
            ratio = prompts.slice_ratio
            vectors = class_vectors_at(prompts.points, features.maps, classes, ratio)
        prior = (
            np.zeros(shape, dtype=np.float32) if prompts.prior is None else 2 * prompts.prior - 1
        )
        tokens = self._tokens.of(prompts, features.tokens[0], shape, vectors)[None]
        given = [features.full, features.half, features.quarter, features.tokens]
        with self._lock:
            compiled = self._of(features.da0, shape)
            logits, iou = _run(
                compiled.decoder[1], [*given, maps, prior[None, None], tokens, features.places]
            )
        return logits, iou

    def graphs(self, da0: int, shape: Shape) -> tuple[openvino.Model, openvino.Model, set[str]]:
        """Both graphs for fields of a degree and a shape, and the names of their weights."""
        layers = GraphLayers(self._weights, da0)
        encoder = encoder_graph(layers, self._sizes, shape)
        return encoder, decoder_graph(layers, self._sizes, shape), layers.used

    def _try_out(self) -> None:
        """Raise RuntimeError unless the CPU computes something small."""
        x = ops.parameter([4], np.float32)
        _, request = self._compile(openvino.Model([ops.result(ops.relu(x))], [x]))
        if not np.array_equal(
            _run(request, [np.array([-1, 0, 1, 2], np.float32)])[0], [0, 0, 1, 2]
        ):
            raise RuntimeError("a trial computation went wrong")

    def _check(self) -> None:
        """Raise ValueError unless all of the weights have their place in the graph."""
        sizes, names = self._sizes, ("stem", "to_half", "to_quarter", "to_tokens")
        widths = tuple(self._weights[f"image_encoder.{name}.bias"].size for name in names)
        heads = self._weights["image_encoder.blocks.0.attention.slope"].size
        masks = len(self._weights["mask_decoder.mask_tokens.weight"])
        if (widths, heads, masks) != ((*sizes.widths, sizes.dim), sizes.num_heads, sizes.num_masks):
            raise ValueError("weights of other sizes")
        _, _, used = self.graphs(0, (8, 8, 8))
        of_prompts = {name for name in self._weights if name.startswith(_OF_PROMPTS)}
        if used | of_prompts != set(self._weights):
            raise ValueError("weights that the graph has no place for")

    def _compile(self, graph: openvino.Model) -> tuple[Any, Any]:
        compiled = self._core.compile_model(graph, "CPU", self._properties)
        return compiled, compiled.create_infer_request()

    def _compile_both(self, da0: int, shape: Shape) -> _Compiled:
        encoder, decoder, _ = self.graphs(da0, shape)
        distances = token_distances(grids(shape, da0)[3])[None, None]
        return _Compiled(self._compile(encoder), self._compile(decoder), distances)

    def _of(self, da0: int, shape: Shape) -> _Compiled:
        key = (da0, shape)
        prepared = self._prepared.pop(key, None)
        found = self._compiled.pop(key, None)
        if found is None and prepared is not None and not prepared.cancel():
            found = prepared.result()
        if found is None:  # nobody has begun with it
            found = self._compile_both(da0, shape)
        # A graph computes in as much memory as a field's features take several times over, and
        # other shapes may follow: only the one that is used last keeps its own.
        for other in list(self._compiled.values())[-1:]:
            other.release()
        self._compiled[key] = found
        while len(self._compiled) > MOST_COMPILED:
            self._compiled.popitem(last=False)
        return found


def _run(request: Any, arrays: list[Floats]) -> list[Floats]:
    """Results of a request as arrays of their own."""
    given = {i: np.ascontiguousarray(array) for i, array in enumerate(arrays)}
    results = request.infer(given, share_inputs=True, share_outputs=True)
    return [np.array(results[i]) for i in range(len(results))]
