"""OpenVINO engine: inference on CPUs, without PyTorch.

Graphs are built directly from the weights, one pair per degree of anisotropy and field shape, and
compiled in a third of a second. Those of a first click are compiled while the scan is opened. So no
export is needed: fine-tuned and imported models work from their checkpoint alone. Compiled graphs
may be cached on disk (`GraphCache`).
"""

import hashlib
import inspect
import logging
import os
import platform
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from io import BytesIO
from threading import Lock, main_thread
from typing import Any, Literal

import numpy as np
import openvino
from openvino import opset15 as ops

from pumit.errors import CheckpointError
from pumit.inference.engine import decoder_graph as decoder_code
from pumit.inference.engine import encoder_graph as encoder_code
from pumit.inference.engine import graph_layers as layers_code
from pumit.inference.engine.decoder_graph import decoder_graph
from pumit.inference.engine.encoder_graph import NetworkSizes, encoder_graph, token_distances
from pumit.inference.engine.engine import FieldPrompts, Floats, R, Shape, T, map_in
from pumit.inference.engine.graph_cache import Blob, GraphCache
from pumit.inference.engine.graph_layers import GraphLayers, Ranges
from pumit.inference.engine.prompt_maps import MapGrid, PromptTokens, prompt_maps, vectors_at
from pumit.models.checkpoint import ModelHeader
from pumit.networks.build import PROMPTABLE
from pumit.preprocessing.fields import grids
from pumit.system.machine import usable_cores

logger = logging.getLogger(__name__)

# Weights that are in no graph: `PromptTokens` uses them.
_OF_PROMPTS = (
    "prompt_encoder.",
    "mask_decoder.iou_token.",
    "mask_decoder.mask_tokens.",
    "prototypes.",  # training only
)
MOST_COMPILED = 12  # graph pairs kept in memory; one scan needs about four
# Number of compiled graph pairs that keep their working memory: those of one answer. To allocate
# it for every field made a first click on a further scan 1.2 times as long.
MOST_WARM = 4
FIELDS_AT_ONCE = 2  # one computes on all cores, another one is pre- or post-processed
MOST_FORESEEN = 4  # graph pairs loaded from the disk cache before the scan is known
# Delay before a compiled graph is written to disk: right after compiling, a click needs the cores.
KEEP_AFTER_S = 1.5
# Variables by which oneDNN, in OpenVINO, uses only some of the CPU's instructions.
_INSTRUCTION_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
Precision = Literal["f32", "bf16"]
_Grid = tuple[int, Shape]  # degree and shape
_Results = list[Floats]


@cache
def shared_core() -> openvino.Core:
    """Return the process-wide OpenVINO core, which is never destroyed.

    On Linux each core's CPU plugin installs a signal handler stack for its thread and removes it
    with the core. If cores are destroyed in the order of creation, the thread keeps an unmapped
    stack, and the next signal (SIGCHLD, SIGTERM) kills the process silently.
    """
    return openvino.Core()


def best_precision() -> Precision:
    """Return "bf16" if the CPU has instructions for it (twice as fast), else "f32"."""
    capabilities = shared_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return "bf16" if "BF16" in capabilities else "f32"


@cache
def multiplies_eight_bits() -> bool:
    """Return whether the CPU multiplies eight-bit integers exactly and fast (VNNI, AMX).

    Older x86 processors add pairs of products in 16 bits, which saturates: the sum below is then
    half as large.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    x = ops.parameter([1, 64, 8, 8, 8], np.float32)
    ones = np.ones((64, 64, 1, 1, 1), np.float32)
    layers = GraphLayers({"a.weight": ones, "a.bias": ones[0] * 0}, 0, {"a": (0, 255)})
    y = layers.point(x, "a")
    model, single = openvino.Model([ops.result(y)], [x]), {"INFERENCE_PRECISION_HINT": "f32"}
    try:
        request = shared_core().compile_model(model, "CPU", single).create_infer_request()
        sums = _infer(request, [np.full(x.shape, 255, np.float32)])[0]
    except RuntimeError:
        return False
    return bool(np.allclose(sums, 255 * 64, rtol=0.02))


def sizes_of(recipe: Mapping[str, Any]) -> NetworkSizes:
    """Read the network sizes from a recipe.

    Raises:
        CheckpointError: If the network is not promptable, or its sizes are invalid.
    """
    try:
        header = ModelHeader.of(recipe)
        if header.network != "promptable":
            raise ValueError
        sizes = NetworkSizes(**{**PROMPTABLE, **header.sizes})
        widths = tuple(int(n) for n in sizes.widths)
        return replace(sizes, widths=(widths[0], widths[1], widths[2]))
    except (IndexError, TypeError, ValueError):
        raise CheckpointError(
            "The model's recipe does not describe a network that OpenVINO can run."
        ) from None


@dataclass(frozen=True)
class GraphFeatures:
    """Outputs of `encoder_graph` for a field, and the prompt-independent part of its maps.

    Attributes:
        places: Position codes of the tokens, (1, N, dim).
        classes: Class vectors at 1/2 resolution, (E, d, h, w), or None.
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
        """Memory used, bytes."""
        arrays = [self.full, self.half, self.quarter, self.tokens, self.places]
        arrays += [] if self.classes is None else [self.classes]
        return sum(array.nbytes for array in arrays) + self.maps.nbytes

    @property
    def summary(self) -> Floats:
        """Mean of the transformer's features, (dim,)."""
        return np.asarray(self.tokens[0].mean((1, 2, 3)))


@dataclass(frozen=True)
class _Compiled:
    """Compiled graph and inference request of each, for one degree and field shape.

    Attributes:
        distances: Pairwise token distances, (1, 1, N, N).
    """

    encoder: tuple[Any, Any]
    decoder: tuple[Any, Any]
    distances: Floats
    in_use: Lock = field(default_factory=Lock)


class OpenVinoEngine:
    """Engine with OpenVINO on the CPU.

    Each field is computed on all cores; two fields of one answer are processed at a time. Threads
    are not pinned to cores, since other programs may use them.

    Args:
        threads: Number of cores to use; None for all available to this process.
        precision: "bf16" is faster and less exact than "f32", on CPUs that support it; see
            `best_precision`.
        ranges: Ranges of layers that multiply in eight bits; see `multiplies_eight_bits`.
        graphs: Factory of the disk cache, called with what compiled graphs depend on; None for no
            cache.

    Raises:
        CheckpointError: If the weights do not fit the network.
        RuntimeError: If OpenVINO does not support the CPU.
    """

    name = "openvino"
    device = "cpu"

    def __init__(
        self,
        weights: Mapping[str, Floats],
        sizes: NetworkSizes,
        *,
        threads: int | None = None,
        precision: Precision = "f32",
        ranges: Ranges | None = None,
        graphs: Callable[[Sequence[str]], GraphCache] | None = None,
    ) -> None:
        self._weights = weights
        self._sizes = sizes
        self._ranges = ranges
        self.field_size = sizes.field_size
        self._core = shared_core()
        self.precision = precision
        cores = threads or usable_cores()
        self._properties = {
            "INFERENCE_PRECISION_HINT": precision,
            "INFERENCE_NUM_THREADS": cores,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "ENABLE_CPU_PINNING": False,
            # Generating fused kernels takes longer than it saves in graphs of this size.
            "SNIPPETS_MODE": "DISABLE",
        }
        self._cache = None
        if graphs is not None:
            with suppress(OSError):  # if the source code of the graphs cannot be read
                machine = _machine_and_code(self._core)
                self._cache = graphs((repr(sizes), repr(ranges), repr(self._properties), *machine))
        # Compiled or pending, the most recently used last.
        self._graphs: OrderedDict[_Grid, Future[_Compiled]] = OrderedDict()
        # Compiling a graph uses one core.
        self._compiling = ThreadPoolExecutor(cores, "pumit-compile")
        self._fields = ThreadPoolExecutor(min(cores, FIELDS_AT_ONCE), "pumit-field")
        self._keeping = ThreadPoolExecutor(1, "pumit-keep")
        self._foreseen: set[_Grid] = set()
        self._warm: list[_Compiled] = []  # those with working memory, the last used last
        self._lock = Lock()
        # A cached graph proves that both checks passed before.
        is_tried = self._cache is not None and bool(self._cache.recent(1))
        if not is_tried:
            self._try_out()
        try:
            self._tokens = PromptTokens(weights, sizes.field_size)
            if not is_tried:
                self._check()
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError("The weights do not fit the network that they name.") from error

    def map(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Apply a function to fields, two in parallel; see `Engine`."""
        if len(items) < 2:
            return [work(item) for item in items]
        return map_in(self._fields, work, items)

    def foresee(self) -> None:
        """Load the most recently used graphs from disk while a scan is being read.

        Users mostly open similar scans. Graphs that the first scan does not need are dropped.
        """
        if self._cache is not None:
            self._foreseen = set(self._cache.recent(MOST_FORESEEN))
            self._begin(self._foreseen)

    def prepare(self, grids: Iterable[_Grid]) -> None:
        """Compile for upcoming fields in the background; see `Engine`."""
        needed = list(grids)
        with self._lock:
            for grid in self._graphs.keys() & self._foreseen.difference(needed):
                self._graphs.pop(grid).cancel()
            self._foreseen.clear()
        self._begin(needed)

    def _begin(self, grids: Iterable[_Grid]) -> None:
        with self._lock:
            for grid in grids:
                if grid not in self._graphs:
                    self._graphs[grid] = self._compiling.submit(self._compile_both, *grid)
            self._forget()

    def rest(self) -> None:
        """Drop all compiled graphs; see `Engine`."""
        with self._lock:
            for graph in self._graphs.values():
                graph.cancel()
            self._graphs.clear()
            self._foreseen.clear()
            self._warm.clear()

    def encode(self, image: Floats, *, da0: int, slice_ratio: float) -> GraphFeatures:
        """Encode a field; see `Engine`."""
        d, h, w = image.shape[1:]
        shape = (d, h, w)
        _, at_half, _, at_tokens = grids(shape, da0)
        maps = MapGrid.of(image[:2], at_half, slice_ratio, geodesic=self._sizes.geodesic)
        coarse = MapGrid(shape, at_tokens, image[:0], [])
        places = self._tokens.of_grid(coarse, slice_ratio)[None]
        compiled = self._of(da0, shape)
        if self._cache is not None:
            self._cache.note_use(da0, shape)
        results = self._run(compiled, compiled.encoder, [image[None], compiled.distances])
        full, half, quarter, tokens = results[:4]
        classes = results[4][0] if self._sizes.class_channels else None
        return GraphFeatures(full, half, quarter, tokens, places, maps, classes, da0)

    def decode(self, features: GraphFeatures, prompts: FieldPrompts) -> tuple[Floats, Floats]:
        """Decode prompts; see `Engine`."""
        shape = features.maps.full
        classes, prior = features.classes, prompts.prior
        maps = prompt_maps(prompts, features.maps, self.field_size, classes)[None]
        vectors = None
        if classes is not None:
            vectors = vectors_at(prompts.points, classes, shape, prompts.slice_ratio)
        prior = np.zeros(shape, dtype=np.float32) if prior is None else 2 * prior - 1
        tokens = self._tokens.of(prompts, features.tokens[0], shape, vectors)[None]
        given = [features.full, features.half, features.quarter, features.tokens]
        given += [maps, prior[None, None], tokens, features.places]
        compiled = self._of(features.da0, shape)
        logits, iou = self._run(compiled, compiled.decoder, given)
        return logits, iou

    def graphs(self, da0: int, shape: Shape) -> tuple[openvino.Model, openvino.Model, set[str]]:
        """Build both graphs for a degree and field shape; also return the weight names used."""
        layers = GraphLayers(self._weights, da0, self._ranges)
        encoder = encoder_graph(layers, self._sizes, shape)
        return encoder, decoder_graph(layers, self._sizes, shape), layers.used

    def _try_out(self) -> None:
        """Raise RuntimeError unless a trivial graph runs on the CPU.

        It normalises, since OpenVINO's kernels for that need AVX2.
        """
        x = ops.parameter([1, 3], np.float32)
        normal = ops.mvn(x, np.array([1]), True, 1e-6, "inside_sqrt")
        _, request = self._compile(openvino.Model([ops.result(ops.relu(normal))], [x]))
        (found,) = _infer(request, [np.array([[-1, 0, 1]], np.float32)])
        if not np.allclose(found, [[0, 0, 1.5**0.5]], atol=0.05):
            raise RuntimeError("a test computation gave a wrong result")

    def _check(self) -> None:
        """Raise ValueError unless the weights match the sizes and all of them are used."""
        sizes, names = self._sizes, ("stem", "to_half", "to_quarter", "to_tokens")
        widths = tuple(self._weights[f"image_encoder.{name}.bias"].size for name in names)
        heads = self._weights["image_encoder.blocks.0.attention.slope"].size
        masks = len(self._weights["mask_decoder.mask_tokens.weight"])
        if (widths, heads, masks) != ((*sizes.widths, sizes.dim), sizes.num_heads, sizes.num_masks):
            raise ValueError("the weights have different sizes")
        _, _, used = self.graphs(0, (8, 8, 8))
        of_prompts = {name for name in self._weights if name.startswith(_OF_PROMPTS)}
        if used | of_prompts != set(self._weights):
            raise ValueError("some weights are not part of the graph")

    def _compile(self, graph: openvino.Model) -> tuple[Any, Any]:
        compiled = self._core.compile_model(graph, "CPU", self._properties)
        return compiled, compiled.create_infer_request()

    def _compile_both(self, da0: int, shape: Shape) -> _Compiled:
        distances = token_distances(grids(shape, da0)[3])[None, None]
        kept = None if self._cache is None else self._cache.read(da0, shape)
        if kept is not None:
            try:
                return _Compiled(self._read(kept[0]), self._read(kept[1]), distances)
            except RuntimeError:  # another build of OpenVINO with the same version
                logger.debug("OpenVINO rejects a cached graph; it is compiled again.")
        graphs = self.graphs(da0, shape)[:2]
        compiled = _Compiled(self._compile(graphs[0]), self._compile(graphs[1]), distances)
        if self._cache is not None and self._cache.is_writable:
            when = time.monotonic() + KEEP_AFTER_S
            self._keeping.submit(self._keep, da0, shape, compiled, when)
        return compiled

    def _keep(self, da0: int, shape: Shape, compiled: _Compiled, when: float) -> None:
        """Write compiled graphs to the disk cache, not before `when` (monotonic clock, s)."""
        assert self._cache is not None
        while time.monotonic() < when and main_thread().is_alive():
            time.sleep(0.05)
        encoder, decoder = BytesIO(), BytesIO()
        try:
            with compiled.in_use:
                compiled.encoder[0].export_model(encoder)
                compiled.decoder[0].export_model(decoder)
        except RuntimeError:
            logger.debug(
                "OpenVINO cannot export a compiled graph; it is compiled again at the next start."
            )
            return
        self._cache.write(da0, shape, (encoder.getvalue(), decoder.getvalue()))

    def _read(self, blob: Blob) -> tuple[Any, Any]:
        compiled = self._core.import_model(BytesIO(blob), "CPU", self._properties)
        return compiled, compiled.create_infer_request()

    def _of(self, da0: int, shape: Shape) -> _Compiled:
        key = (da0, shape)
        with self._lock:
            future = self._graphs.pop(key, None)
            # A pending graph is compiled here immediately, ahead of the queue.
            is_mine = future is None or future.cancel()
            if future is None or is_mine:
                future = Future()
                future.set_running_or_notify_cancel()  # no other thread may take it
            self._graphs[key] = future
            self._forget()
        try:
            if is_mine:
                future.set_result(self._compile_both(da0, shape))
            return future.result()
        except BaseException as error:
            if is_mine:
                future.set_exception(error)
            with self._lock:
                if self._graphs.get(key) is future:  # the next request tries again
                    del self._graphs[key]
            raise

    def _forget(self) -> None:
        """Evict the least recently used graphs; the caller holds the lock."""
        while len(self._graphs) > MOST_COMPILED:
            self._graphs.popitem(last=False)[1].cancel()

    def _run(self, compiled: _Compiled, graph: tuple[Any, Any], arrays: list[Floats]) -> _Results:
        """Run one of the graphs and return copies of its outputs."""
        with compiled.in_use:
            results = _infer(graph[1], arrays)
        # A graph's working memory is several times that of a field's features.
        with self._lock:
            self._warm = [*(other for other in self._warm if other is not compiled), compiled]
            cooling, self._warm = self._warm[:-MOST_WARM], self._warm[-MOST_WARM:]
        for other in cooling:
            if other.in_use.acquire(blocking=False):
                try:  # the next inference allocates it again
                    other.encoder[0].release_memory()
                    other.decoder[0].release_memory()
                finally:
                    other.in_use.release()
        return results


@cache
def _machine_and_code(core: openvino.Core) -> tuple[str, ...]:
    """Return what compiled graphs depend on, apart from weights and sizes."""
    code = hashlib.sha256()
    for source in (decoder_code, encoder_code, layers_code, grids):
        code.update(inspect.getsource(source).encode())
    name = core.get_property("CPU", "FULL_DEVICE_NAME")
    capabilities = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    limits = [os.environ[limit] for limit in _INSTRUCTION_LIMITS if limit in os.environ]
    return openvino.get_version(), name, repr(sorted(capabilities)), code.hexdigest(), *limits


def _infer(request: Any, arrays: list[Floats]) -> _Results:
    given = {i: np.ascontiguousarray(array) for i, array in enumerate(arrays)}
    results = request.infer(given, share_inputs=True, share_outputs=True)
    return [np.array(results[i]) for i in range(len(results))]
