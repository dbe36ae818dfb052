"""Scenes cut from real scans, with labelled structures or pseudo-targets."""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pumit.errors import PumitError, VolumeError
from pumit.preprocessing.fields import Field, field_shape
from pumit.training.promptable.real_scan import RealScan, load_scan, number_classes
from pumit.training.promptable.supervoxels import pseudo_targets
from pumit.training.synthesis.grid import integer, log_uniform, rotation_of, uniform
from pumit.training.synthesis.scene import (
    MIN_REAL_SHARE,
    UNKNOWN,
    Scene,
    is_target,
    slice_ratio_for,
)

logger = logging.getLogger(__name__)

INVERTED = 0.3  # share of images with inverted intensities
# Share of scenes with pseudo-targets instead of organs: the network should follow the prompt, not
# recognise organs.
UNLABELLED = 0.5
UNION, PART = 0.12, 0.12  # shares of labelled targets that are a union, or a part
CLOSE = 0.15  # share of fields smaller than their structure
COARSENED = 2.5  # a scan is skipped if its slices need voxels this much coarser than drawn
WIDE = (0.2, 1.0)  # extent of a structure over that of an upright field
VIEW = (0.4, 1.0)  # width of a wide field over that of its scan
TILT = 0.2  # largest in-plane rotation of an upright field, radians
TRIES = 12  # scans tried per scene


class RealScans:
    """Source of scenes from folders of `<case>/{image,label}.nii.gz` and from unlabelled scans.

    Draws a data set with weight sqrt(number of patients), then a patient, one of their scans and
    one of its structures. Large data sets therefore do not dominate.

    Args:
        unlabelled_targets: Share of scenes with pseudo-targets, drawn from the image alone.
        shares: Fixed shares of some data sets, 0 to 1; the others divide the rest.
        upright: Share of scenes of scans with labels that keep the orientation, do not invert
            intensities and show more context. Structures are learnt much faster from these.
    """

    def __init__(
        self,
        folder: Path,
        cases: Sequence[str],
        unlabelled: Sequence[Path] = (),
        unlabelled_targets: float = UNLABELLED,
        shares: Mapping[str, float] | None = None,
        upright: float = 0.0,
    ) -> None:
        self.scans: list[RealScan] = []
        self.shares = dict(shares or {})
        self.unlabelled_targets = unlabelled_targets
        self.upright = upright
        self._sets: dict[str, dict[str, list[int]]] = {}  # data set -> patient -> scans
        self.add(folder, cases)
        for path in unlabelled:
            self.add_unlabelled(path)

    def add(self, folder: Path, cases: Sequence[str]) -> None:
        """Read cases of another folder; its `index.json` may name their data sets and patients."""
        known = case_index(folder)
        for case in cases:
            label = folder / case / "label.nii.gz"
            try:
                scan = load_scan(folder / case / "image.nii.gz", label if label.exists() else None)
            except VolumeError as error:
                raise VolumeError(f"{case}: {error}") from None
            facts = known.get(case, {})
            self._add(
                scan,
                str(facts.get("dataset") or data_set_of(case)),
                str(facts.get("patient") or case),
            )

    def add_unlabelled(self, path: Path, *, series: str | None = None) -> None:
        """Read an additional scan without labels, as a separate patient.

        Raises:
            VolumeError: If the scan cannot be used.
        """
        name = path.name if series is None else series
        self._add(load_scan(path, None, series=series), "unlabelled", name)

    def number_classes(self) -> list[tuple[str, int]]:
        """Assign class numbers to labels and backgrounds of all data sets; see `number_classes`."""
        return number_classes(
            {
                data_set: [self.scans[i] for group in patients.values() for i in group]
                for data_set, patients in self._sets.items()
            }
        )

    def _add(self, scan: RealScan, data_set: str, patient: str) -> None:
        patients = self._sets.setdefault(data_set, {})
        patients.setdefault(patient, []).append(len(self.scans))
        self.scans.append(scan)

    def _any(self, rng: np.random.Generator) -> RealScan:
        """Draw a scan: first the data set, then the patient."""
        sets = list(self._sets.values())
        patients = list(sets[int(rng.choice(len(sets), p=self._set_shares()))].values())
        scans = patients[int(rng.integers(len(patients)))]
        return self.scans[scans[int(rng.integers(len(scans)))]]

    def _set_shares(self) -> npt.NDArray[np.float64]:
        """Return the probability of each data set; raise PumitError if `shares` names another."""
        if missing := sorted(set(self.shares) - set(self._sets)):
            known = ", ".join(sorted(self._sets))
            raise PumitError(
                f"There is no data set {missing[0]!r} to draw from; these are: {known}."
            )
        roots = {name: len(p) ** 0.5 for name, p in self._sets.items() if name not in self.shares}
        left = 1 - sum(self.shares.values())
        total = sum(roots.values())
        weights = [
            self.shares.get(n, left * roots.get(n, 0.0) / max(total, 1e-9)) for n in self._sets
        ]
        return np.asarray(weights) / sum(weights)

    def draw(
        self, da0: int, size: int, generator: torch.Generator, *, is_wide: bool = False
    ) -> Scene | None:
        """Draw a scene of a degree of anisotropy, or return None if no try has a usable target.

        With `is_wide`, draw an upright scene with classes that shows much of its scan.
        """
        rng = np.random.default_rng(int(torch.randint(2**31, (), generator=generator)))
        for _ in range(TRIES):
            scan = self._any(rng)
            if is_wide and not (len(scan.classes) and scan.places):
                continue
            scene = self._scene(scan, da0, size, rng, generator, is_wide=is_wide)
            if scene is not None:
                return scene
        return None

    def _scene(
        self,
        scan: RealScan,
        da0: int,
        size: int,
        rng: np.random.Generator,
        generator: torch.Generator,
        *,
        is_wide: bool,
    ) -> Scene | None:
        """Draw a scene from a scan, or return None if it is not usable."""
        # 1. Centre and in-plane spacing: around a structure, or anywhere.
        ratio = slice_ratio_for(da0, generator)
        spacing = np.asarray(scan.image.spacing_mm)
        whole = float(np.max(np.asarray(scan.image.array.shape[1:]) * spacing[1:]))
        value = 0
        is_upright = is_wide or (bool(scan.places) and rng.random() < self.upright)
        if is_wide or (scan.places and rng.random() >= self.unlabelled_targets):
            value = int(rng.choice(list(scan.places)))
            voxels, extent = scan.places[value]
            centre = voxels[int(rng.integers(len(voxels)))].astype(np.float64)
            if is_wide:
                in_plane = whole / size * log_uniform(generator, *VIEW)
            else:
                share = log_uniform(generator, *WIDE) if is_upright else share_of_field(generator)
                in_plane = extent / (size * share)
        else:
            centre = rng.uniform(0.2, 0.8, 3) * np.asarray(scan.image.array.shape)
            in_plane = whole / size * float(np.exp(rng.uniform(np.log(0.25), np.log(1.1))))
        # 2. Field there; slices are never thinner than those of the scan.
        in_plane = float(np.clip(in_plane, 0.7 * spacing[1], None))
        if da0 < 5:
            least = float(spacing[0]) / ratio
            if least > COARSENED * in_plane:
                return None
            in_plane = max(in_plane, least)
        slice_mm = float(spacing[0]) if da0 == 5 else in_plane * ratio
        step = (slice_mm / spacing[0], in_plane / spacing[1], in_plane / spacing[2])
        shape = field_shape(da0, size)
        room = np.asarray(shape) * np.asarray(step)
        aside = 0.2 if is_wide else 0.3
        centre = centre + rng.uniform(-aside, aside, 3) * room
        if da0 == 5:
            centre[0] = np.round(np.clip(centre[0], 0, scan.image.array.shape[0] - 1))
        where = Field(tuple(centre), step, shape, ratio, da0)
        if is_upright:
            rotation = rotation_of([rng.uniform(-TILT, TILT)])
        else:
            rotation = _rotation(rng, is_isotropic=da0 == 0 and spacing[0] < 1.6 * spacing[1])
        image, inside = map(torch.from_numpy, scan.image.sample(where, rotation))
        if float(inside.mean()) < 0.4:
            return None
        image = torch.where(inside > 0, image, image[inside > 0].min())
        # 3. Targets: labelled structures, or pseudo-targets.
        classes = labels = None
        if scan.labels is not None and (value or len(scan.classes)):
            labels = torch.from_numpy(scan.labels.sample_nearest(where, rotation))
        if labels is not None and len(scan.classes):
            classes = torch.from_numpy(scan.classes)[labels.long().clamp(0, len(scan.classes) - 1)]
            classes = torch.where(inside > 0, classes, UNKNOWN)
        if labels is not None and value:
            found = label_targets(scan, labels, value, rng)
            sizes = [scan.voxels[structure] / float(np.prod(step)) for structure, _ in found]
            targets, sizes = varied([mask for _, mask in found], sizes, rng, generator)
            wholes = None if da0 == 5 else sizes  # in 2D only the slice counts
        else:
            targets = pseudo_targets(image, inside, 1.0 if da0 == 5 else ratio, rng)
            wholes = None
        if not targets:
            return None
        return Scene(
            vary(image, rng, inverted=0.0 if is_upright else INVERTED),
            targets,
            ratio,
            is_upright=is_upright,
            wholes=wholes,
            classes=classes,
            regions=None if labels is None else torch.where(labels > 0, labels, UNKNOWN),
        )


def share_of_field(generator: torch.Generator) -> float:
    """Draw the extent of a structure over that of its field; above 1 the field shows a part."""
    if torch.rand((), generator=generator) < CLOSE:
        return uniform(generator, 1.2, 3.0)
    return log_uniform(generator, 0.08, 1.2)


def case_index(folder: Path) -> dict[str, dict[str, object]]:
    """Read the facts of each case from `index.json` in or next to its folder; empty if absent.

    Raises:
        PumitError: If it cannot be read.
    """
    for place in (folder / "index.json", folder.parent / "index.json"):
        if not place.is_file():
            continue
        try:
            found = json.loads(place.read_text(encoding="utf-8-sig"))
        except (OSError, ValueError) as error:
            raise PumitError(
                f"{place.name} in {place.parent.name} cannot be read ({type(error).__name__}); "
                "repair it, or remove it."
            ) from None
        entries = found.items() if isinstance(found, dict) else ()
        return {case: facts for case, facts in entries if isinstance(facts, dict)}
    return {}


def data_set_of(case: str) -> str:
    """Infer the data set from a case's name: its first two words, without digits."""
    words = re.split(r"[_-]", re.sub(r"\d+", "", case))
    return "_".join(words[:2])


def part_of(mask: Tensor, generator: torch.Generator) -> Tensor:
    """Cut a mask (D, H, W) by a random plane through one of its voxels, and return one side."""
    at = torch.nonzero(mask)
    if len(at) == 0:
        return mask
    normal = torch.randn(3, generator=generator)
    size = torch.tensor(mask.shape).float().clamp_min(2)
    place = at[integer(generator, 0, len(at) - 1)].float().cpu()
    side = ((at.cpu().float() - place) / size) @ normal > 0
    out = torch.zeros_like(mask)
    d, h, w = at[side.to(at.device)].unbind(1)
    out[d, h, w] = True
    return out


def varied(
    targets: list[Tensor],
    wholes: Sequence[float],
    rng: np.random.Generator,
    generator: torch.Generator,
) -> tuple[list[Tensor], list[float]]:
    """Replace some targets (D, H, W) by a union with another, or by a part.

    Returns:
        The masks, and the whole size of each structure, voxels, see `Scene.wholes`; scaled down for
        a part.
    """
    out, sizes = [], []
    for target, whole in zip(targets, wholes, strict=True):
        draw, other, size = rng.random(), target, whole
        if draw < UNION and len(targets) > 1:
            index = int(rng.integers(len(targets)))
            other = target | targets[index]
            size = whole if targets[index] is target else whole + wholes[index]
        elif draw < UNION + PART:
            other = part_of(target, generator)
            size = whole * float(other.sum()) / max(float(target.sum()), 1.0)
        is_usable = is_target(other, MIN_REAL_SHARE)
        out.append(other if is_usable else target)
        sizes.append(size if is_usable else whole)
    return out, sizes


def _rotation(rng: np.random.Generator, *, is_isotropic: bool) -> npt.NDArray[np.float64]:
    """Draw an in-plane rotation and flips; if isotropic, also permute the axes."""
    angle = rng.uniform(-np.pi, np.pi) if rng.random() < 0.7 else 0.0
    matrix = rotation_of([angle]) * rng.choice([-1.0, 1.0], 3)[:, None]
    if is_isotropic:
        matrix = matrix[rng.permutation(3)]
    return matrix


def label_targets(
    scan: RealScan, labels: Tensor, value: int, rng: np.random.Generator
) -> list[tuple[int, Tensor]]:
    """Return a structure and up to four others in the field with their masks (D, H, W).

    The label map is sampled on the field, (D, H, W).
    """
    targets = []
    shown = set(np.unique(labels.numpy()).tolist())
    others = [
        other
        for other, members in scan.values.items()
        if other != value and not shown.isdisjoint(members)
    ]
    for v in [value, *map(int, rng.permutation(others))][:5]:
        mask = scan.mask(labels, v)
        if is_target(mask, MIN_REAL_SHARE):
            targets.append((v, mask))
    return targets


def vary(image: Tensor, rng: np.random.Generator, *, inverted: float = INVERTED) -> Tensor:
    """Augment intensities with random gamma, inversion and noise."""
    low, high = image.min(), image.max()
    x = (image - low) / (high - low).clamp_min(1e-6)
    if rng.random() < 0.5:
        x = x ** float(np.exp(rng.uniform(-0.6, 0.6)))
    if rng.random() < inverted:
        x = 1 - x
    if rng.random() < 0.5:
        noise = torch.from_numpy(rng.standard_normal(tuple(x.shape), dtype=np.float32))
        x = x + float(rng.uniform(0.0, 0.05)) * noise
    return x
