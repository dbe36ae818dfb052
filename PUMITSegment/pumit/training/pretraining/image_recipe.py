"""Unlabelled images of a pre-training recipe, shared by the tokenizer and the encoders."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pumit.errors import PumitError, VolumeError
from pumit.io.scans import find_scans
from pumit.system.wording import count_of
from pumit.training.data.volume_cache import VolumeCache
from pumit.training.loop.distributed import rank, world
from pumit.training.loop.task import Task
from pumit.training.pretraining.image_source import (
    CACHE_SETTINGS,
    ImageFile,
    ImageSource,
    RealImages,
    crop_shape,
    degrees_of,
)
from pumit.training.pretraining.objective import Objective, sizes_of
from pumit.training.recipes.pretraining import ImagePattern, ImageRecipe
from pumit.training.run.reporter import RunReporter
from pumit.volume import Volume


def objective_of(recipe: ImageRecipe, task: Task, prefix: str = "", **content: Any) -> Objective:
    """Return the objective of a network trained on images.

    Its inference window is as large as the largest crop, for the most context.
    """
    largest = max(recipe.crop, key=lambda crop: crop.in_plane)
    plan = {"in_plane": largest.in_plane, "depth": largest.depth}
    content = {"network": recipe.network, "sizes": sizes_of(recipe), **content, "plan": plan}
    return Objective(task, degrees_of(recipe.degrees), content, prefix)


def shapes_of(recipe: ImageRecipe) -> list[tuple[int, tuple[int, int, int]]]:
    """Return degree of anisotropy and shape (d, h, w) of all crops, without reading data.

    Raises:
        PumitError: If a crop size is not a multiple of 16, or the degrees are invalid.
    """
    degrees = degrees_of(recipe.degrees)
    return [(da0, crop_shape(crop, da0)) for crop in recipe.crop for da0 in degrees]


def require_grey_or_colour(recipe: ImageRecipe) -> None:
    """Raise PumitError if the network does not take one or three channels."""
    channels = sizes_of(recipe)["in_channels"]
    if channels not in (1, 3):
        raise PumitError(f"in_channels of {recipe.network} is 1 or 3, got {channels}.")


def image_source(
    recipe: ImageRecipe, reporter: RunReporter, *, is_upright: bool = False
) -> ImageSource:
    """Build the image source of a recipe.

    `real_images` are patterns below `real_folder`, each with an optional `weight` and `depth_axis`.
    Without patterns, all scans of the folder are used; without a folder, all images are generated.
    `cache` is a folder for pre-processed images.

    Args:
        is_upright: Whether to reorient images to anatomical axes, and never flip or rotate them.

    Raises:
        PumitError: If the recipe needs real images that are not given or not found.
    """
    images = None
    if recipe.real_share >= 1 and recipe.real_folder is None and recipe.real_images is None:
        raise PumitError(
            "The recipe learns from real scans only (real_share: 1); give their folder with --on "
            "FOLDER."
        )
    if recipe.real_images != [] and recipe.real_folder is not None:
        folder = Path(recipe.real_folder).expanduser()
        if not folder.is_dir():
            raise PumitError(
                f"There is no folder {folder.name} of scans to learn from (--on, real_folder or "
                "unlabelled); check the path, or connect its disk or share."
            )
        cache = None
        if recipe.cache is not None:
            settings = {**CACHE_SETTINGS, "upright": True} if is_upright else CACHE_SETTINGS
            cache = VolumeCache(Path(recipe.cache).expanduser(), settings)
        files = (
            found_images(folder)
            if recipe.real_images is None
            else find_images(folder, recipe.real_images)
        )
        reporter.event("scans", scans_found(len(files)))
        images = RealImages(
            files,
            cache=cache,
            in_memory=recipe.images_in_memory,
            share=(rank(), world()),
            is_upright=is_upright,
        )
    return ImageSource(
        recipe.crop,
        images=images,
        real_share=recipe.real_share,
        batch_size=recipe.batch_size,
        generated_size=recipe.generated_size,
        is_upright=is_upright,
    )


def scans_found(count: int, unusable: int = 0) -> str:
    """Return the sentence on how many scans a folder holds."""
    left_out = f" {unusable} of them cannot be used." if unusable else ""
    return f"{count_of(count, 'scan')} found.{left_out}"


def found_images(folder: Path) -> list[ImageFile]:
    """Find all scans in a folder and its subfolders: files, and each DICOM series.

    Unusable scans are skipped when they are drawn.

    Raises:
        PumitError: If there are none, or the folder cannot be read.
    """
    scans = find_scans([folder], whole_tree=True)
    if [scan.path for scan in scans] == [folder]:  # one series, or nothing
        try:
            Volume.read(folder, series=scans[0].series)
        except VolumeError as error:
            raise PumitError(f"There is no scan to learn from in {folder.name}: {error}") from None
    return [ImageFile(scan.path, scan.name, series=scan.series, is_found=True) for scan in scans]


def find_images(folder: Path, rows: Sequence[ImagePattern]) -> list[ImageFile]:
    """Find the files that match any of the patterns, each once.

    The weight of a pattern is shared by its files, so that a large data set does not dominate a
    small one. Without a weight, each file has weight 1.

    Raises:
        PumitError: If a pattern matches nothing.
    """
    found: dict[Path, ImageFile] = {}
    for row in rows:
        pattern, base = row.pattern, folder
        while pattern.startswith("../"):  # data sets may be sibling folders
            base, pattern = base.parent, pattern[3:]
        is_relative = pattern and not Path(pattern).is_absolute()
        matches = sorted(base.glob(pattern)) if is_relative else []
        if not matches:
            raise PumitError(f"No image matches {pattern!r} in {base.name}; check real_images.")
        weight = 1.0 if row.weight is None else row.weight / len(matches)
        for path in matches:
            name = f"{path.parent.name}/{path.name}"
            found.setdefault(path, ImageFile(path, name, weight, row.depth_axis))
    return list(found.values())
