"""Pre-training objective of the promptable network."""

from collections.abc import Callable, Mapping, Sequence
from glob import escape, glob
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pumit.errors import PumitError, VolumeError
from pumit.inference.loading import pick_device
from pumit.io.scans import find_scans
from pumit.networks.build import PROMPTABLE, build_network
from pumit.networks.promptable.growth import CONTEXT, PROTOTYPES
from pumit.networks.promptable.layers import pooled
from pumit.networks.promptable.network import PromptableNetwork
from pumit.networks.pumit import Anisotropy
from pumit.training.loop.context import TrainingRun
from pumit.training.pretraining.image_recipe import scans_found
from pumit.training.pretraining.objective import Objective, load_initial_network
from pumit.training.promptable.fields import ROUNDS, FieldSource
from pumit.training.promptable.label_maps import LabelMaps
from pumit.training.promptable.labelled_scans import UNLABELLED, RealScans, case_index
from pumit.training.promptable.task import DEGREE_SHARES, DEGREES, PromptableTask
from pumit.training.recipes.pretraining import PromptableRecipe, RealSet
from pumit.training.run.reporter import RunReporter
from pumit.training.run.resume_state import LAST
from pumit.training.synthesis.layout import SceneShares
from pumit.training.synthesis.scene import generated_classes

# Fields for the initial prototypes, divided by the batch size; and the least number of batches.
PROTOTYPE_FIELDS, FEWEST_BATCHES = 140, 6


@torch.no_grad()
def begin_prototypes(
    task: PromptableTask,
    degrees: Sequence[int],
    seed: int = 0,
    *,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Initialise the prototype of each class with the mean of its vectors, over drawn fields.

    Classes that no drawn field shows keep their prototype.

    Args:
        degrees: Degree of anisotropy of each batch to draw.
        check: Called before each batch; ends the work by an exception.
    """
    prototypes = task.network.prototypes
    assert prototypes is not None
    generator, shared = (torch.Generator().manual_seed(seed) for _ in range(2))
    weight = prototypes.weight
    sums, cells = torch.zeros_like(weight), weight.new_zeros(len(weight))
    for da0 in degrees:
        check()
        batch = task.draw(da0, generator, shared).to(weight.device)
        for image, truth in ((batch.image, batch.classes), (batch.more, batch.more_classes)):
            vectors = task.network.embed(image, Anisotropy(da0)).classes if len(image) else None
            if vectors is not None:
                found, there = class_sums(vectors, truth, len(weight))
                sums, cells = sums + found, cells + there
    weight[cells > 0] = sums[cells > 0] / cells[cells > 0, None]


def class_sums(vectors: Tensor, truth: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Sum the class vectors of each class.

    Args:
        vectors: Class vectors, (B, E, d, h, w).
        truth: Class of each voxel, (B, D, H, W), `UNKNOWN` where not annotated.

    Returns:
        Sums (N, E), and size of each class (N,) in cells of the vectors' grid.
    """
    d, h, w = vectors.shape[2:]
    sums, cells = vectors.new_zeros(count, vectors.shape[1]), vectors.new_zeros(count)
    for c in torch.unique(truth).tolist():
        if 0 <= c < count:
            share = pooled((truth == c).float()[:, None], (d, h, w))[:, 0]
            sums[c] = torch.einsum("bdhw,bedhw->e", share, vectors.float())
            cells[c] = share.sum()
    return sums, cells


def build(recipe: PromptableRecipe, run: TrainingRun) -> Objective:
    """Build network, data and task of a recipe."""
    scene_device = _scene_device(recipe, run)
    sizes: dict[str, Any] = {**PROMPTABLE, **recipe.network_sizes}
    scans = None
    class_sets: list[tuple[str, int]] = []
    if recipe.real_cases or (recipe.real_folder is not None and not recipe.label_maps):
        folder = _real_folder(recipe)
        if not folder.is_dir():
            raise PumitError(f"real_folder {folder.name} is missing; give it with --on FOLDER.")
        share = recipe.unlabelled_targets
        scans = RealScans(
            folder,
            recipe.real_cases,
            [folder / u for u in recipe.real_unlabelled],
            UNLABELLED if share is None else share,
            recipe.real_shares,
            recipe.upright,
        )
        if not recipe.real_cases:
            _add_found(scans, folder, run.reporter)
        for each in recipe.real_sets:
            cases = folder / each.folder
            scans.add(cases, _of_tiers(cases, each))
    label_maps = _label_maps(recipe)
    generated_from = None
    if sizes["class_channels"]:
        class_sets = scans.number_classes() if scans is not None else []
        if recipe.generated_classes:
            if label_maps is not None:
                class_sets += label_maps.number_classes(len(class_sets))
            generated_from = len(class_sets)
            class_sets += generated_classes()
        sizes["num_classes"] = len(class_sets)
    network = build_network("promptable", **sizes)
    assert isinstance(network, PromptableNetwork)
    initial: Mapping[str, torch.Tensor] = {}
    if recipe.initial is not None:
        initial = load_initial_network(network, recipe.initial, "promptable")
    source = FieldSource(
        network.field_size,
        scans=scans,
        real_share=recipe.real_share,
        label_maps=label_maps,
        map_share=recipe.map_share,
        field_sizes=recipe.field_sizes,
        batch_size=recipe.batch_size,
        targets_per_field=recipe.targets_per_field,
        device=scene_device,
        rounds=ROUNDS if recipe.rounds is None else recipe.rounds,
        more_fields=recipe.more_fields,
        generated_from=generated_from,
        scene_shares=SceneShares(recipe.heart_share, recipe.trunk_share),
    )
    task = PromptableTask(
        network,
        source,
        compiler="inductor" if recipe.compile else None,
        stability_weight=recipe.stability_weight,
        class_sets=class_sets,
    )
    degrees = dict(zip(DEGREES, DEGREE_SHARES, strict=True))
    # Shipped models have no prototypes, and those of other classes do not fit. If the class
    # vectors are already trained, the prototypes are initialised with means.
    has_classes = any(name.startswith(CONTEXT) for name in initial)
    own, known = network.prototypes, initial.get(PROTOTYPES)
    is_known = own is not None and known is not None and known.shape == own.weight.shape
    is_new = not (run.output / LAST).is_file()
    if has_classes and own is not None and is_new and not is_known:
        # A short run needs no better start than its steps can use.
        steps = recipe.schedule.steps
        batches = max(min(PROTOTYPE_FIELDS // recipe.batch_size, steps), FEWEST_BATCHES)
        generator = torch.Generator().manual_seed(recipe.seed)
        drawn = torch.multinomial(
            torch.tensor(DEGREE_SHARES), batches, True, generator=generator
        ).tolist()
        run.reporter.event("classes", f"The class vectors start from {batches} batches of fields.")
        degrees_drawn = [DEGREES[i] for i in drawn]
        begin_prototypes(task, degrees_drawn, recipe.seed, check=run.reporter.check)
    content: dict[str, Any] = {"network": "promptable", "sizes": sizes}
    if recipe.largest_field is not None:
        content["largest_field"] = recipe.largest_field
    if recipe.averages_fields:
        content["averages_fields"] = True
    return Objective(task, degrees, content)


def _add_found(scans: RealScans, folder: Path, reporter: RunReporter) -> None:
    """Add all usable scans of a folder as unlabelled; raise PumitError if there are none."""
    found = find_scans([folder], whole_tree=True)
    for number, scan in enumerate(found, start=1):
        reporter.at_case("Reading", number)
        try:
            scans.add_unlabelled(scan.path, series=scan.series)
        except VolumeError as error:
            reason = error
    if not scans.scans:
        raise PumitError(f"None of the scans can be used; the last one: {reason}")
    reporter.event("scans", scans_found(len(found), len(found) - len(scans.scans)))


def _of_tiers(folder: Path, chosen: RealSet) -> list[str]:
    """List the cases of a folder: those named, or those of the chosen tiers in `index.json`."""
    if not folder.is_dir():
        raise PumitError(f"The folder {folder.name} of real_sets is missing; leave it out.")
    if chosen.cases is not None:
        return [str(case) for case in chosen.cases]
    known = case_index(folder)
    tiers, without = set(chosen.tiers), set(chosen.without)
    return sorted(
        case
        for case, facts in known.items()
        if (not tiers or facts.get("tier") in tiers) and facts.get("dataset") not in without
    )


def _real_folder(recipe: PromptableRecipe) -> Path:
    if recipe.real_folder is None:
        raise PumitError("label_maps lie below real_folder; say where that is.")
    return Path(recipe.real_folder).expanduser()


def _label_maps(recipe: PromptableRecipe) -> LabelMaps | None:
    """Read the label maps of a recipe, given as paths or patterns below `real_folder`."""
    if not recipe.label_maps:
        return None
    folder = _real_folder(recipe)
    paths: list[Path] = []
    for pattern in recipe.label_maps:
        found = sorted(glob(str(Path(escape(str(folder)), pattern))))
        if not found:
            raise PumitError(f"No label map fits {Path(pattern).name}; leave it out of label_maps.")
        paths += map(Path, found)
    return LabelMaps(paths)


def _scene_device(recipe: PromptableRecipe, run: TrainingRun) -> torch.device:
    """Return the device for generating scans; with worker processes, it must be the CPU."""
    chosen = recipe.scene_device
    there = run.device if chosen == "auto" else pick_device(chosen)
    if there.type != "cpu" and run.workers > 0:
        raise PumitError("Worker processes draw on the CPU; set workers or scene_device, not both.")
    return there
