"""`pumit train` with `task: sam`: fine-tune SAM's decoder and BA-SAM's slopes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import ndimage
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.errors import PumitError
from pumit.evaluation.metrics import dice
from pumit.inference.interactive.sam_solver import SamEngine, answer_slice, load_sam
from pumit.models.checkpoint import load_checkpoint
from pumit.models.index import find_model
from pumit.models.sam_file import DESCRIPTION, PUBLIC_FILE, is_sam_model
from pumit.preprocessing.channels import grey, is_colour
from pumit.preprocessing.network_axes import depth_first
from pumit.preprocessing.sam_slice import display_window, slice_pixels
from pumit.training.data.case import LabelledVolume, read_labelled
from pumit.training.data.checks import examine
from pumit.training.data.classes import UNKNOWN, ClassValue
from pumit.training.data.found_cases import LabelledCase
from pumit.training.data.labelled_set import find_labelled_set
from pumit.training.data.split import SplitData, split_set
from pumit.training.loop.fit import finite
from pumit.training.loop.state import Validate
from pumit.training.loop.task import Draw, Task
from pumit.training.promptable.plan import structures_of
from pumit.training.promptable.run import PromptedJob
from pumit.training.recipes.promptable import SamRecipe
from pumit.training.run.resume_state import LAST
from pumit.training.synthesis.grid import chance, integer

FEWEST_PIXELS = 16
SLOPE = "slopes.beta"
Mask = npt.NDArray[np.bool_]
Box = tuple[float, float, float, float]
SETTINGS = ("initial", "part", "image_size", "batch_size", "boxes", "answers")


@dataclass(frozen=True, eq=False)
class SamScan:
    """A labelled scan, depth axis first.

    Attributes:
        pixels: (channels, D, H, W), one channel or three.
        labels: (D, H, W), from `read_labelled`.
    """

    name: str
    pixels: npt.NDArray[Any]
    labels: npt.NDArray[np.uint8]
    window: tuple[float, float]

    @staticmethod
    def of(case: LabelledVolume) -> SamScan:
        """Prepare a case for SAM; of several non-colour channels, only the first is used."""
        volume = case.volume
        order = depth_first(volume.spacing_mm, volume.shape)
        array = volume.array if is_colour(volume) else grey(volume, 0)[None]
        pixels = array.transpose(0, *(1 + axis for axis in order))
        return SamScan(case.name, pixels, case.labels.transpose(order), display_window(pixels))

    def mask(self, depth: int, values: Sequence[int]) -> Mask:
        """Return the pixels of a slice with one of the labels, (H, W)."""
        return np.isin(self.labels[depth], values)


@dataclass(frozen=True)
class SlicePlace:
    """A slice that shows a structure, with the structure's pixel count."""

    scan: int
    depth: int
    structure: int
    pixels: int


# A slice (1, 3, size, size), its target mask (H, W), and the prompt: a box or points.
SamPrompt = tuple[Tensor, Tensor, Box | None, tuple[tuple[float, float, bool], ...]]


def places_of(scans: Sequence[SamScan], structures: dict[int, tuple[int, ...]]) -> list[SlicePlace]:
    """List the fully annotated slices with at least `FEWEST_PIXELS` of a structure."""
    places = []
    for number, scan in enumerate(scans):
        for depth in map(int, np.flatnonzero(scan.labels.any((1, 2)))):
            if (scan.labels[depth] == UNKNOWN).any():
                continue
            for structure, values in structures.items():
                count = int(scan.mask(depth, values).sum())
                if count >= FEWEST_PIXELS:
                    places.append(SlicePlace(number, depth, structure, count))
    return places


def box_of(mask: Mask) -> Box:
    """Return the left, top, right and bottom edges of a mask in continuous indices."""
    rows, columns = np.nonzero(mask)
    return (
        *(float(columns.min()) - 0.5, float(rows.min()) - 0.5),
        *(float(columns.max()) + 0.5, float(rows.max()) + 0.5),
    )


class SamTask:
    """Segment structures on slices of labelled scans from one random point or a bounding box.

    Args:
        network: SAM network; parameters outside `part` are frozen here.
        structures: Labels that make up each class, by class number.
        size: Longer side of the encoder input, pixels.

    Source:
        Song et al., BA-SAM, CVPR 2024, section 5: fine-tuned with one random point.
        Differs from the source: the backbone is SAM's ViT, and is frozen.
    """

    def __init__(
        self,
        network: nn.Module,
        scans: Sequence[SamScan],
        structures: dict[int, tuple[int, ...]],
        *,
        size: int,
        batch_size: int,
        boxes: float,
        part: str,
    ) -> None:
        self.network = network.train()
        self.scans, self.structures = list(scans), structures
        self.size, self.batch_size, self.boxes = size, batch_size, boxes
        self._by_structure: dict[int, list[SlicePlace]] = {}
        for place in places_of(scans, structures):
            self._by_structure.setdefault(place.structure, []).append(place)
        for name, parameter in network.named_parameters():
            is_decoder = name.startswith("model.mask_decoder.")
            parameter.requires_grad_(name.endswith(SLOPE) or (part == "decoder" and is_decoder))

    def draw(
        self, da0: int, generator: torch.Generator, shared: torch.Generator
    ) -> list[SamPrompt]:
        """Draw a batch of prompts, with structures drawn uniformly."""
        return [self._prompt(generator) for _ in range(self.batch_size)]

    def worker_draw(self) -> Draw:
        """Return the function that draws batches in worker processes."""
        return self.draw

    def _prompt(self, generator: torch.Generator) -> SamPrompt:
        places = list(self._by_structure.values())[
            integer(generator, 0, len(self._by_structure) - 1)
        ]
        place = places[integer(generator, 0, len(places) - 1)]
        scan = self.scans[place.scan]
        mask = scan.mask(place.depth, self.structures[place.structure])
        is_box = chance(generator, self.boxes)
        row, column = np.argwhere(mask)[integer(generator, 0, place.pixels - 1)]
        return (
            slice_pixels(scan.pixels[:, place.depth], scan.window, self.size),
            torch.from_numpy(mask.astype(np.float32)),
            box_of(mask) if is_box else None,
            () if is_box else ((float(column), float(row), True),),
        )

    def forward(self, batch: Sequence[SamPrompt]) -> dict[str, Tensor]:
        """Compute the loss of the best of several masks, and of their IoU estimates.

        Returns:
            `loss`, the sum of cross-entropy, soft Dice and the squared error of the IoU estimates;
            `dice` of the best masks.
        """
        network: Any = self.network
        device = next(network.parameters()).device
        losses, found = [], []
        for image, target, box, points in batch:
            target = target.to(device)
            embedding = network.embed(image.to(device))
            shape = (target.shape[0], target.shape[1])
            logits, estimates = answer_slice(network, embedding, shape, self.size, box, points)
            wanted = target.expand_as(logits)
            p = logits.sigmoid()
            both, each = (p * wanted).sum((1, 2)), (p + wanted).sum((1, 2))
            cross = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
            loss = cross.mean((1, 2)) + 1 - (2 * both + 1) / (each + 1)
            with torch.no_grad():
                inside = logits > 0
                shared = (inside & (wanted > 0)).sum((1, 2)).float()
                union = (inside | (wanted > 0)).sum((1, 2)).float()
                iou = shared / union.clamp_min(1)
            best = int(loss.argmin())
            losses.append(loss[best] + F.mse_loss(estimates, iou))
            found.append(2 * iou[best] / (1 + iou[best]))
        return {"loss": torch.stack(losses).mean(), "dice": torch.stack(found).mean()}


@dataclass(frozen=True)
class SamRow:
    """Dice of a structure on the slice that shows most of it, for one click and for a box."""

    case: str
    label: str
    clicks: tuple[float]
    dice_box: float


class SamValidation:
    """Validation by Dice on the slice that shows most of each structure, of at most `most`.

    Prompts are a click at the voxel farthest from the border, and the bounding box.
    """

    def __init__(
        self,
        network: nn.Module,
        scans: Sequence[SamScan],
        structures: dict[int, tuple[int, ...]],
        names: dict[int, str],
        *,
        size: int,
        most: int,
    ) -> None:
        self._network: Any = network.eval()
        self._scans, self._structures, self._names, self._size = scans, structures, names, size
        largest: dict[tuple[int, int], SlicePlace] = {}
        for place in places_of(scans, structures):
            key = (place.scan, place.structure)
            if key not in largest or place.pixels > largest[key].pixels:
                largest[key] = place
        chosen = sorted(largest.values(), key=lambda place: place.scan)
        step = max(1, -(-len(chosen) // most))
        self._places = chosen[::step]
        self.rows: list[SamRow] = []

    def __call__(self, state: dict[str, Tensor]) -> dict[str, float]:
        """Evaluate weights: `score` is the mean of `dice_1` (one click) and `dice_box`."""
        self._network.load_state_dict(state)
        with torch.inference_mode():
            self.rows = [self._row(place) for place in self._places]
        if not self.rows:
            return {"score": float("nan")}
        click = float(np.mean([row.clicks[0] for row in self.rows]))
        box = float(np.mean([row.dice_box for row in self.rows]))
        return {"score": (click + box) / 2, "dice_1": click, "dice_box": box}

    def _row(self, place: SlicePlace) -> SamRow:
        scan, network = self._scans[place.scan], self._network
        mask = scan.mask(place.depth, self._structures[place.structure])
        image = slice_pixels(scan.pixels[:, place.depth], scan.window, self._size)
        embedding = network.embed(image.to(next(network.parameters()).device))
        depth = ndimage.distance_transform_edt(np.pad(mask, 1))[1:-1, 1:-1]
        row, column = np.unravel_index(int(depth.argmax()), mask.shape)
        prompts: list[tuple[Box | None, list[tuple[float, float, bool]]]] = [
            (None, [(float(column), float(row), True)]),
            (box_of(mask), []),
        ]
        scores = []
        for box, points in prompts:
            shape = (mask.shape[0], mask.shape[1])
            logits, overlaps = answer_slice(network, embedding, shape, self._size, box, points)
            scores.append(dice(logits[int(overlaps.argmax())].cpu().numpy() > 0, mask))
        return SamRow(scan.name, self._names[place.structure], (scores[0],), scores[1])


class SamJob(PromptedJob[SamRecipe]):
    """Fine-tuning of SAM: best is the mean Dice of a click and a box."""

    network, settings = "sam", SETTINGS
    size: int
    scans: Sequence[SamScan]
    scores: SamValidation

    def plan(self) -> None:
        """Read the initial model and all data, and report them."""
        run, recipe = self.run, self.recipe
        if not recipe.initial:
            raise PumitError(f"SAM's weights do not ship; give --initial, {PUBLIC_FILE}.")
        given = run.file.path(recipe.initial)
        self.path = find_model(given if given.exists() else recipe.initial)
        if not self.path.exists():
            raise PumitError(f"There is no file {self.path.name}; give {PUBLIC_FILE}.")
        if not is_sam_model(self.path):
            raise PumitError(f"{self.path.name} is no SAM; give {PUBLIC_FILE}.")
        engine, self.initial = load_sam(self.path, "cpu", size=recipe.image_size)
        self.size = engine.field_size
        data = find_labelled_set(recipe.data, run.file.path)
        facts = examine(data, progress=lambda number: run.at_case("Reading", number))
        self.data = SplitData(data, facts, split_set(data.cases, recipe.data, seed=recipe.seed))
        run.report({"data": self.data.record()})
        run.report({"plan": {**self._settings(), "network": "sam", "initial": self.path.name}})

    def prepare(self) -> None:
        """Read the training cases.

        Raises:
            PumitError: If no slice has enough pixels of any class.
        """
        self.scans = self._scans(self.data.training)
        if not places_of(self.scans, structures_of(self.classes)):
            raise PumitError("No slice of a training case has enough of any class to point at.")

    def validation(self) -> Validate:
        """Validate each structure with a click and a box; the initial model is measured first."""
        classes = self.classes
        names = {i: c.label.name for i, c in enumerate(classes, start=1)}
        self.scores = SamValidation(
            self._engine().network,
            self._scans(self.data.validation),
            structures_of(classes),
            names,
            size=self.size,
            most=self.recipe.answers,
        )
        if self.run.is_first:
            found = self.scores(self.initial.single)
            if not (self.run.output / LAST).is_file():  # otherwise the log has it already
                self.run.report({"step": 0, "validation": finite(found)})
        self.before = self.scores.rows
        return self.scores

    def task(self) -> Task:
        """Build the task: slices with one prompt each, and the loss of the masks."""
        return SamTask(
            self._engine().network,
            self.scans,
            structures_of(self.classes),
            size=self.size,
            batch_size=self.recipe.batch_size,
            boxes=self.recipe.boxes,
            part=self.recipe.part,
        )

    def content(self) -> dict[str, Any]:
        """Return the metadata that `load_segmenter` needs."""
        return {**super().content(), "description": DESCRIPTION}

    def evaluate_best(self, best: Sequence[Path]) -> None:
        """Evaluate the best model and write its scores per case."""
        checkpoint = load_checkpoint(best[0])
        found = self.scores(checkpoint.single)
        self.write_result(found, self.scores.rows, step=checkpoint.header.step)

    def smaller(self) -> str | None:
        """Halve the prompts per step."""
        return self.half_the_batch("prompts")

    def _engine(self) -> SamEngine:
        """Build a new network with the initial weights."""
        return load_sam(self.path, str(self.run.device), size=self.size)[0]

    @property
    def classes(self) -> Sequence[ClassValue]:
        """Classes of the data set."""
        return self.data.data.classes

    def _scans(self, cases: Sequence[LabelledCase]) -> list[SamScan]:
        return [SamScan.of(read_labelled(case, self.classes)) for case in cases]
