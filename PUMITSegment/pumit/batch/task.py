"""Prediction of one scan of a batch: settings, task and outcome."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from pumit.errors import (
    CheckpointError,
    DiskFullError,
    ExportError,
    OtherModality,
    PumitError,
    UnfamiliarScan,
    UnknownModality,
)
from pumit.export.companions import Companions, ResultOrigin
from pumit.io.scans import Scan, suffix_of
from pumit.system.files import changed_ns, refuse_replacing
from pumit.system.out_of_memory import is_out_of_memory
from pumit.system.watch import UNWATCHED, Watch

if TYPE_CHECKING:
    from pumit.segmentation import Algorithm, LabelMap
    from pumit.volume import Volume

logger = logging.getLogger(__name__)

Corners = tuple[tuple[float, float, float], ...]
Answerer = Callable[["Volume", Watch], "tuple[LabelMap, Algorithm]"]
State = Literal["done", "was there", "nothing found", "failed", "stopped"]

# Prevents two threads of one worker from loading the same model twice.
_loading = Lock()


@dataclass(frozen=True)
class BatchSettings:
    """Settings of a batch, the same for every scan.

    Attributes:
        model: Path of the checkpoint; empty if a structure's model is chosen for each scan.
        structure: Name of a structure to segment; empty for all classes of the model.
        structure_model: Automatic model for it; None for the best that knows it.
        corners_lps: Eight corners of a region of interest, LPS mm; None for the whole scan.
        channel: Channel to use if the scan has other channels than the model.
        has_channel_files: Whether NAME_0000, NAME_0001 ... are the channels of one scan.
        overlap: Overlap of adjacent sliding windows, as a fraction.
        flips: Whether to average eight reflections (test-time augmentation).
        anyway: Whether to allow a model of another modality for the structure.
        tells_doubt: Whether an automatic model also estimates where it may be wrong.
    """

    model: str = ""
    kind: str = "automatic"
    structure: str = ""
    structure_model: str | None = None
    corners_lps: Corners | None = None
    channel: int = 0
    has_channel_files: bool = False
    overlap: float = 0.75
    flips: bool = False
    device: str = "auto"
    anyway: bool = False
    tells_doubt: bool = False


@dataclass(frozen=True)
class ScanTask:
    """A scan to predict, with its target file and settings."""

    scan: Scan
    target: Path
    settings: BatchSettings
    again: bool = False
    companions: Companions = field(default_factory=Companions)

    @property
    def is_done(self) -> bool:
        """Whether the result and its companion files exist."""
        return self.companions.are_there(self.target)

    @property
    def is_label_map(self) -> bool:
        """Whether the format is a label map, which also holds that nothing was found."""
        from pumit.export.labelmap import LABELMAP_SUFFIXES
        from pumit.export.write import SEG_NRRD_SUFFIX

        suffix = suffix_of(self.target, (SEG_NRRD_SUFFIX, *LABELMAP_SUFFIXES))
        return suffix in LABELMAP_SUFFIXES


@dataclass(frozen=True)
class Outcome:
    """Outcome of the prediction of one scan.

    Attributes:
        state: "done", "was there" (finished earlier), "nothing found" if the format holds no empty
            result, "failed", or "stopped" if later scans would fail too.
        classes: Label, name and voxel count of each non-empty class.
        remark: Warning if the scan may not suit the model; or empty.
    """

    name: str
    state: State
    error: str = ""
    model: str = ""
    classes: tuple[dict[str, Any], ...] = field(default=())
    seconds: float = 0.0
    remark: str = ""


def predict_scan(task: ScanTask, watch: Watch = UNWATCHED) -> Outcome:
    """Predict one scan; errors become its outcome, not exceptions.

    An existing result is skipped, so that a scan submitted twice, after a restart of the scheduler,
    is predicted once.
    """
    name = task.scan.name
    if not task.again and task.is_done:
        return Outcome(name, "was there")
    started = time.monotonic()
    try:
        outcome = _predicted(task, watch)
        return replace(outcome, seconds=round(time.monotonic() - started, 3))
    except (DiskFullError, CheckpointError) as error:  # the next scan would fail too
        return Outcome(name, "stopped", str(error))
    except PumitError as error:
        return Outcome(name, "failed", str(error))
    except Exception as error:
        logger.info("a scan failed", exc_info=True)
        if is_out_of_memory(error):
            return Outcome(name, "failed", "There is not enough memory for this scan; crop it.")
        return Outcome(name, "failed", f"A fault of the program ({type(error).__name__}).")


def _predicted(task: ScanTask, watch: Watch) -> Outcome:
    import numpy as np

    from pumit.export.classes import numbered_segments
    from pumit.export.labelmap import write_labels
    from pumit.export.write import check_source, write_segmentation
    from pumit.io.labels.label_source import read_scan
    from pumit.io.scans import channel_files
    from pumit.segmentation import Segmentation
    from pumit.volume import Volume

    scan, target = task.scan, task.target
    if task.settings.has_channel_files:
        files = channel_files(scan.path)
        refuse_replacing(target, files)
        volume = read_scan(files)
    else:
        volume = Volume.read(scan.path, series=scan.series)
    check_source(target, volume)
    found, algorithm = predictor_for(task.settings)(volume, watch)
    target.parent.mkdir(parents=True, exist_ok=True)
    is_nothing = not (task.is_label_map or found.labels.any())
    is_replaced = task.again and not is_nothing
    remark = found.remark if is_replaced else f"{found.remark} {_kept(target)}".strip()
    if is_nothing:
        task.companions.remove(target)  # of the result before
        return Outcome(scan.name, "nothing found", model=algorithm.name, remark=remark)
    if task.is_label_map:
        # Label values mean the same class in every file, even if all are background. Overlapping
        # regions: the later one wins, as in nnU-Net; .seg.nrrd and DICOM-SEG hold all of each.
        write_labels(found.labels, volume, target, made_by=algorithm)
    else:
        values, segments = zip(*numbered_segments(found).items(), strict=True)
        write_segmentation(Segmentation(volume, segments, algorithm, values), target)
    if task.companions != Companions():
        _write_companions(task, volume, found, algorithm)
    counts = (int(np.count_nonzero(found.mask(n))) for n in range(1, len(found.classes) + 1))
    classes = [
        {"label": number, "name": label.name, "voxels": voxels}
        for number, (label, voxels) in enumerate(zip(found.classes, counts, strict=True), start=1)
        if voxels
    ]
    return Outcome(scan.name, "done", "", algorithm.name, tuple(classes), remark=remark)


def _kept(target: Path) -> str:
    """Move a result without its companions aside, as it may have been corrected; say where."""
    if not target.exists():
        return ""
    folder = target.with_name("previous")
    folder.mkdir(exist_ok=True)
    names = (f"{number}-{target.name}" if number else target.name for number in count())
    target.replace(kept := next(p for p in map(folder.joinpath, names) if not p.exists()))
    return f"The result before is kept as {folder.name}/{kept.name}."


def _write_companions(
    task: ScanTask, volume: Volume, found: LabelMap, algorithm: Algorithm
) -> None:
    from pumit.export.classes import segments_of
    from pumit.models.checkpoint import read_recipe
    from pumit.models.index import find_model

    settings = task.settings
    try:
        segments = segments_of(found)
    except ExportError:  # an empty label map is a valid result
        segments = ()
    model = settings.model or settings.structure_model or algorithm.name.removeprefix("PUMIT ")
    # Without paths, which may contain names.
    told = {key: value for key, value in asdict(settings).items() if "model" not in key}
    sha256 = read_recipe(find_model(model))[1] if task.companions.has_manifest else ""
    origin = ResultOrigin(sha256, _device(settings.device), told, task.scan.path)
    channel = settings.channel if volume.channels > 1 else 0  # as the model took it
    task.companions.write(task.target, volume, segments, algorithm, origin, channel=channel)


def _device(device: str) -> str:
    """Resolve the device "auto"; without PyTorch the CPU is used."""
    if "torch" not in sys.modules:
        return "cpu"
    from pumit.inference.loading import pick_device

    return str(pick_device(device))


def predictor_for(settings: BatchSettings) -> Answerer:
    """Return the predictor for these settings; its model is loaded once per process.

    It is loaded again if its file has changed since, as in a cluster's worker that runs for weeks.
    """
    from pumit.models.index import list_models

    models = [Path(settings.model)] if settings.model else [m.path for m in list_models()]
    with _loading:
        return _answerer(settings, tuple(map(changed_ns, models)))


@lru_cache(maxsize=1)
def _answerer(settings: BatchSettings, _changed_ns: tuple[int, ...]) -> Answerer:
    from pumit.segmentation import Algorithm

    corners = settings.corners_lps
    if settings.structure:
        return _finder(settings)
    if settings.kind == "promptable":
        from pumit.inference.automatic.everything import segment_everything
        from pumit.inference.interactive.segmenter import load_segmenter
        from pumit.inference.interactive.session import InteractiveSession

        segmenter = load_segmenter(Path(settings.model), device=settings.device)
        signed = Algorithm(f"PUMIT {segmenter.name}", segmenter.version, "AUTOMATIC")

        def everything(volume: Volume, watch: Watch) -> tuple[LabelMap, Algorithm]:
            session = InteractiveSession(segmenter)
            session.set_volume(volume, channel=settings.channel)
            found = segment_everything(session, roi_corners_lps=corners, watch=watch)
            return found, signed

        return everything
    from pumit.inference.automatic.segmentation import load_automatic

    model = load_automatic(Path(settings.model), device=settings.device)
    by_model = Algorithm(f"PUMIT {model.name}", model.version, "AUTOMATIC")

    def automatic(volume: Volume, watch: Watch) -> tuple[LabelMap, Algorithm]:
        found = model.segment(
            volume,
            channel=settings.channel,
            roi_corners_lps=corners,
            overlap=settings.overlap,
            averages_flips=settings.flips,
            tells_doubt=settings.tells_doubt,
            watch=watch,
        )
        return found, by_model

    return automatic


def _finder(settings: BatchSettings) -> Answerer:
    """Return a predictor of a structure that chooses the best model for each scan."""
    from pumit.models.card import installed_models
    from pumit.segmentation import Algorithm
    from pumit.structures.find import InstalledModels, plan_search, run_search

    models, cards = InstalledModels(settings.device), installed_models()

    def find(volume: Volume, watch: Watch) -> tuple[LabelMap, Algorithm]:
        try:
            search = plan_search(
                volume,
                settings.structure,
                cards,
                models,
                model=settings.structure_model,
                channel=settings.channel,
                anyway=settings.anyway,
            )
        except UnknownModality as error:
            raise UnknownModality(f"{error} Name the model with --model.") from None
        except (UnfamiliarScan, OtherModality) as error:
            raise type(error)(f"{error} Add --anyway to search nevertheless.") from None
        found = run_search(
            volume,
            search,
            models,
            channel=settings.channel,
            roi_corners_lps=settings.corners_lps,
            watch=watch,
        )
        return found.found, Algorithm(f"PUMIT {found.model}", found.version, "AUTOMATIC")

    return find
