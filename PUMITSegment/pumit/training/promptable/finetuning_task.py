"""Fine-tuning on a lab's own scans, without forgetting other anatomy."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from pumit.inference.interactive.field_planner import FieldPlanner
from pumit.inference.interactive.solver_state import SolverSettings
from pumit.networks.promptable.image_encoder import ImageEmbedding
from pumit.networks.promptable.network import PromptableNetwork
from pumit.networks.promptable.prompt_encoder import PromptBatch
from pumit.networks.pumit import Anisotropy
from pumit.preprocessing.fields import PLANAR_DEGREE, Field, field_shape
from pumit.training.promptable.fields import FieldBatch, FieldSource
from pumit.training.promptable.labelled_scans import label_targets, vary
from pumit.training.promptable.real_scan import RealScan
from pumit.training.promptable.supervoxels import pseudo_targets
from pumit.training.promptable.task import Grade, PromptableTask, per_size, score
from pumit.training.synthesis.grid import rotation_of
from pumit.training.synthesis.scene import Scene

# Range of the field's in-plane spacing over that of inference. Inference fields have a third more
# voxels than training fields, which are therefore somewhat coarser to cover as much.
COARSER = (0.85, 1.6)
TURN = math.radians(12)  # standard deviation of the rotation angle
OFF_CENTRE = 0.2  # largest shift from the drawn voxel, share of the field
LEAST_SEEN = 0.3  # smallest share of a field inside the scan
ELSEWHERE = 0.25  # share of scenes with pseudo-targets outside the labelled structures
SHARED = 0.2  # largest labelled share of a pseudo-target
# The first click matters most to a lab, and fewer rounds make shorter steps.
ROUNDS = {1: 0.35, 2: 0.3, 3: 0.2, 5: 0.15}
ONE_CLICK = 0.6


# A scan, one of its structures, and an in-plane spacing, mm, at which inference views it.
_FieldSite = tuple[RealScan, int, float]


class OwnScans:
    """Source of scenes at the positions and field sizes that inference uses.

    Unlike `RealScans`, which augments strongly, it keeps scans upright and their intensities nearly
    unchanged, because the scans of one lab are similar. Some scenes have pseudo-targets outside the
    labelled structures. These are marked as unlabelled; the network should answer them as before.
    """

    def __init__(self, scans: Sequence[RealScan], field_size: int) -> None:
        self.scans = list(scans)
        size = round(field_size * SolverSettings().field_scale / 8) * 8
        sites: dict[int, dict[int, list[_FieldSite]]] = {}
        for scan in self.scans:
            d, h, w = scan.image.array.shape
            planner = FieldPlanner((d, h, w), scan.image.spacing_mm, size)
            for structure, (voxels, _) in scan.places.items():
                for where in planner.around_click(voxels.mean(0)):
                    spacing = where.step[1] * scan.image.spacing_mm[1]
                    of_degree = sites.setdefault(where.da0, {})
                    of_degree.setdefault(structure, []).append((scan, structure, spacing))
        self._sites = sites

    @property
    def degrees(self) -> dict[int, float]:
        """Share of each degree of anisotropy among the fields, with structures weighted equally."""
        counts = dict.fromkeys(sorted(self._sites), 0.0)
        structures = {s for by_structure in self._sites.values() for s in by_structure}
        for structure in structures:
            found = {da0: len(by.get(structure, ())) for da0, by in self._sites.items()}
            for da0, count in found.items():
                counts[da0] += count / sum(found.values()) / len(structures)
        return counts

    def draw(
        self, da0: int, size: int, generator: torch.Generator, *, is_wide: bool = False
    ) -> Scene | None:
        """Draw a scene of a degree of anisotropy, or return None if it has no usable target."""
        by_structure = self._sites.get(da0)
        if not by_structure or is_wide:  # these scans have no classes
            return None
        rng = np.random.default_rng(int(torch.randint(2**31, (), generator=generator)))
        # 1. A structure, drawn uniformly, and a field around it at a size used by inference.
        sites = by_structure[sorted(by_structure)[int(rng.integers(len(by_structure)))]]
        site = sites[int(rng.integers(len(sites)))]
        scan, structure, _ = site
        where = _field(site, da0, size, rng)
        rotation = _turned(rng, is_isotropic=da0 == 0)
        # 2. Sample the scan; reject fields that lie mostly outside it.
        image, inside = map(torch.from_numpy, scan.image.sample(where, rotation))
        if float(inside.mean()) < LEAST_SEEN:
            return None
        assert scan.labels is not None
        labels = torch.from_numpy(scan.labels.sample_nearest(where, rotation))
        # 3. Targets: the labelled structure, or pseudo-targets mostly outside all labels.
        is_labelled = rng.random() >= ELSEWHERE
        if is_labelled:
            targets = [mask for _, mask in label_targets(scan, labels, structure, rng)]
        else:
            ratio = 1.0 if da0 == PLANAR_DEGREE else where.slice_ratio
            found = pseudo_targets(image, inside, ratio, rng)
            targets = [t for t in found if float((labels[t] > 0).float().mean()) <= SHARED]
        if not targets:
            return None
        return Scene(
            vary(image, rng, inverted=0.0),
            targets,
            where.slice_ratio,
            inside,
            is_upright=True,
            is_labelled=is_labelled,
        )


def _field(site: _FieldSite, da0: int, size: int, rng: np.random.Generator) -> Field:
    """Return a field around a random voxel of the structure, shifted into the scan if it fits."""
    scan, structure, in_plane_mm = site
    spacing = np.asarray(scan.image.spacing_mm)
    in_plane = in_plane_mm * float(np.exp(rng.uniform(*np.log(COARSER))))
    if 0 < da0 < PLANAR_DEGREE:  # keep the spacing within the range of this degree
        in_plane = float(np.clip(in_plane, spacing[0] / 2 ** (da0 + 0.99), spacing[0] / 2**da0))
    elif da0 == 0:
        in_plane = max(in_plane, spacing[0] / 1.99)
    slice_mm = spacing[0] if da0 == PLANAR_DEGREE else max(spacing[0], in_plane)
    step = np.array([slice_mm, in_plane, in_plane]) / spacing
    shape = field_shape(da0, size)
    voxels, _ = scan.places[structure]
    room = np.asarray(shape) * step
    place = voxels[int(rng.integers(len(voxels)))].astype(np.float64)
    centre = place + rng.uniform(-1, 1, 3) * OFF_CENTRE * room
    grid = np.asarray(scan.image.array.shape)
    low, high = room / 2 - 0.5, grid - 0.5 - room / 2
    centre = np.where(low < high, np.clip(centre, low, high), (grid - 1) / 2)
    if shape[0] == 1:
        centre[0] = place[0]
    d, h, w = (float(c) for c in centre)
    return Field((d, h, w), tuple(step.tolist()), shape, float(slice_mm / in_plane), da0)


def _turned(rng: np.random.Generator, *, is_isotropic: bool) -> npt.NDArray[np.float64]:
    """Draw a small rotation about the depth axis, or about all three axes if isotropic."""
    return rotation_of(rng.normal(0, TURN, 3 if is_isotropic else 1).tolist())


class ClickTask(PromptableTask):
    """Fine-tuning objective: ground truth on a lab's own scans, distillation on all other fields.

    On fields without the lab's labels the network should keep its original predictions. The
    generated labels are not used there, because the original network never matched them exactly.

    Args:
        real_share: Share of fields from `scans`, by degree of anisotropy.

    Source:
        Li and Hoiem, Learning without Forgetting, ECCV 2016, the distillation term.
        Differs from the source: distils on generated fields instead of the new data, and adds
        soft Dice to the cross-entropy, because the predictions are masks.
    """

    def __init__(
        self,
        network: PromptableNetwork,
        original: PromptableNetwork,
        scans: OwnScans,
        *,
        real_share: Mapping[int, float],
        distillation_weight: float = 1.0,
        batch_size: int = 1,
        targets_per_field: int = 2,
    ) -> None:
        super().__init__(
            network,
            FieldSource(
                network.field_size,
                scans=scans,
                real_share=real_share,
                batch_size=batch_size,
                targets_per_field=targets_per_field,
                rounds=ROUNDS,
                one_click=ONE_CLICK,
            ),
        )
        self.distillation_weight = distillation_weight
        # In a tuple, so that it is not registered as a submodule.
        self._original = (original.requires_grad_(False).eval(),)
        self._shares_encoder = not any(p.requires_grad for p in network.image_encoder.parameters())

    def grader(self, batch: FieldBatch, embedding: ImageEmbedding) -> Grade:
        """Return a function that scores labelled fields by ground truth, others by distillation."""
        (original,) = self._original
        real, kept = batch.is_real, ~batch.is_real
        # 1. Embed the fields to distil on with the original network.
        before: ImageEmbedding | None = None
        if bool(kept.any()):
            if self._shares_encoder:
                before = embedding.mapped(lambda tensor: tensor[kept])
            else:
                original.to(batch.image.device)
                images = kept[:: self.source.targets_per_field]
                with torch.no_grad():
                    before = original.embed(batch.image[images], Anisotropy(batch.da0))
                before = before.repeat(self.source.targets_per_field)

        def grade(
            prompts: PromptBatch, logits: Tensor, iou: Tensor, ambiguous: Tensor
        ) -> tuple[Tensor, Tensor, Tensor]:
            shown = torch.where(ambiguous, iou.detach().argmax(1), 0)
            # 2. Labelled fields: loss against the ground truth.
            loss, error = logits.new_zeros(()), iou.new_zeros(())
            share = real.float().mean()
            if bool(real.any()):
                learnt, _, error = score(
                    logits[real], iou[real], batch.target[real], ambiguous[real], batch.beyond[real]
                )
                loss = loss + share * learnt
            # 3. Other fields: distance to the original's predictions for the same prompts.
            if before is not None:
                with torch.no_grad():
                    kept_prompts = PromptBatch(**{k: v[kept] for k, v in vars(prompts).items()})
                    original_logits, estimate = original.decode(before, kept_prompts)
                drift = difference(
                    logits[kept], iou[kept], original_logits, estimate, ambiguous[kept]
                )
                loss = loss + (1 - share) * self.distillation_weight * drift
            return loss, shown, error

        return grade


def difference(
    logits: Tensor, iou: Tensor, original_logits: Tensor, estimate: Tensor, ambiguous: Tensor
) -> Tensor:
    """Compute the distillation loss between two networks' predictions, a scalar.

    It is smallest where the predictions agree.

    Args:
        logits: (B, M, D, H, W), like `original_logits`.
        iou: IoU estimates (B, M), like `estimate` of the original network.
        ambiguous: Whether all masks count, or only the first, (B,).
    """
    with torch.autocast(logits.device.type, enabled=False):
        x = logits.float().flatten(2)  # (B, M, V)
        truth = original_logits.float().flatten(2).sigmoid()
        p = x.sigmoid()
        # With squares in the denominator, the optimum for a soft target is the target itself.
        both, each = (p * truth).sum(-1), (p.square() + truth.square()).sum(-1)
        dice = 1 - (2 * both + 10) / (each + 10)
        cross = F.binary_cross_entropy_with_logits(x, truth, reduction="none")
        wrong = (iou.float() - estimate.float()).abs()
        counts = torch.ones_like(dice)
        counts[:, 1:] = ambiguous[:, None].to(counts.dtype)
        return ((dice + per_size(cross, truth) + wrong) * counts).sum() / counts.sum()
