"""The unlabelled images of a recipe: keys that the tokenizer and the ViT have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pumit.errors import PumitError
from pumit.training.data.volume_cache import VolumeCache
from pumit.training.loop.distributed import rank, world
from pumit.training.pretraining.image_source import Crop, ImageSource, degrees_of
from pumit.training.pretraining.real_images import CACHE_SETTINGS, ImageFile, RealImages
from pumit.training.recipes.reader import Kinds, check_keys

KINDS: Kinds = {
    "crop": (dict, list),
    "degrees": (dict,),
    "real_share": (int, float),
    "real_folder": (str,),
    "real_images": (list,),
    "generated_size": (int,),
    "cache": (str,),
    "images_in_memory": (int,),
}
IMAGES_KINDS: Kinds = {"pattern": (str,), "weight": (int, float), "depth_axis": (str,)}
CROP_KINDS: Kinds = {"depth": (int,), "in_plane": (int,)}


def crops_of(recipe: Mapping[str, Any]) -> tuple[Crop, ...]:
    """Sizes of the crops: `crop` is one, or a list of which each step draws one.

    Raises:
        PumitError: If one is not made of multiples of 16.
    """
    given = recipe.get("crop", {})
    crops = []
    for row in [given] if isinstance(given, dict) else given:
        if not isinstance(row, dict):
            raise PumitError(f"Each crop needs depth and in_plane, got {row!r}.")
        check_keys(row, CROP_KINDS, "crop")
        try:
            crops.append(Crop(**row))
        except ValueError as error:
            raise PumitError(str(error)) from None
    if not crops:
        raise PumitError("crop is empty; give a size, or leave it out.")
    return tuple(crops)


def window_plan(recipe: Mapping[str, Any]) -> dict[str, int]:
    """Windows of inference: as large as the largest crop, for what lies around helps."""
    crops = crops_of(recipe)
    largest = max(crops, key=lambda crop: crop.in_plane)
    return {"in_plane": largest.in_plane, "depth": largest.depth}


def degrees(recipe: Mapping[str, Any]) -> dict[int, float]:
    """Shares of the degrees of anisotropy.

    Raises:
        PumitError: If they cannot be used.
    """
    try:
        return degrees_of(recipe.get("degrees"))
    except (ValueError, TypeError) as error:
        raise PumitError(str(error)) from None


def check(recipe: Mapping[str, Any], name: str) -> None:
    """Raise PumitError for keys that cannot be used, reading no data."""
    crops_of(recipe)
    degrees(recipe)
    for row in recipe.get("real_images", []):
        if isinstance(row, dict):
            check_keys(row, IMAGES_KINDS, "real_images")
        if not isinstance(row, str) and "pattern" not in row:
            raise PumitError(
                f"Each of real_images in {name} is a pattern, or has one; got {row!r}."
            )
    if recipe.get("real_images") and "real_folder" not in recipe:
        raise PumitError(f"{name} has real_images but no real_folder; say where they lie.")


def image_source(recipe: Mapping[str, Any], *, is_upright: bool = False) -> ImageSource:
    """Where the images of a recipe come from.

    `real_images` are patterns below `real_folder`, or hold one with a `weight` and a `depth_axis`;
    without them all images are generated. `cache` is a folder for prepared images.

    Args:
        recipe: With keys of `KINDS`.
        is_upright: Whether all images are seen as bodies lie, never flipped or turned.

    Raises:
        PumitError: If there are none.
    """
    images = None
    if recipe.get("real_images"):
        folder = Path(recipe["real_folder"]).expanduser()
        if not folder.is_dir():
            raise PumitError(
                f"real_folder {folder.name} is missing; remove real_images to go without."
            )
        cache = None
        if "cache" in recipe:
            settings = {**CACHE_SETTINGS, "upright": True} if is_upright else CACHE_SETTINGS
            cache = VolumeCache(Path(recipe["cache"]).expanduser(), settings)
        images = RealImages(
            find_images(folder, recipe["real_images"]),
            cache=cache,
            in_memory=int(recipe.get("images_in_memory", 64)),
            share=(rank(), world()),
            is_upright=is_upright,
        )
    return ImageSource(
        crops_of(recipe),
        images=images,
        real_share=float(recipe.get("real_share", 0.6)),
        batch_size=int(recipe.get("batch_size", 4)),
        generated_size=int(recipe.get("generated_size", 64)),
        is_upright=is_upright,
    )


def find_images(folder: Path, rows: Sequence[str | Mapping[str, Any]]) -> list[ImageFile]:
    """Files that match any of the patterns, each once.

    A weight is that of all files of its pattern together, so that a large data set does not drown
    a small one; patterns without one weigh as much as they have files.

    Args:
        folder: Where they lie.
        rows: Patterns, or mappings with `pattern`, and perhaps `weight` and `depth_axis`.

    Raises:
        PumitError: If a pattern matches nothing.
    """
    found: dict[Path, ImageFile] = {}
    for row in rows:
        entry = {"pattern": row} if isinstance(row, str) else row
        pattern, base = str(entry["pattern"]), folder
        while pattern.startswith("../"):  # data sets lie beside each other
            base, pattern = base.parent, pattern[3:]
        matches = sorted(base.glob(pattern))
        if not matches:
            raise PumitError(f"No image matches {pattern!r} in {base.name}; check real_images.")
        weight = float(entry["weight"]) / len(matches) if "weight" in entry else 1.0
        for path in matches:
            name = f"{path.parent.name}/{path.name}"
            found.setdefault(path, ImageFile(path, name, weight, entry.get("depth_axis")))
    return list(found.values())
