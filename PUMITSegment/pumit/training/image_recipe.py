"""The unlabelled images of a recipe: keys that the tokenizer and the ViT have in common."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pumit.errors import PumitError
from pumit.training.image_source import Crop, ImageSource, degrees_of
from pumit.training.objectives import Setting
from pumit.training.real_images import RealImages
from pumit.training.recipe_file import Kinds, check_keys

KINDS: Kinds = {
    "crop": (dict,),
    "degrees": (dict,),
    "real_share": (int, float),
    "real_folder": (str,),
    "real_images": (list,),
    "generated_size": (int,),
}
CROP_KINDS: Kinds = {"depth": (int,), "in_plane": (int,)}


def crop_of(recipe: Mapping[str, Any]) -> Crop:
    """Size of the crops.

    Raises:
        PumitError: If it is not made of multiples of 16.
    """
    given = recipe.get("crop", {})
    check_keys(given, CROP_KINDS, "crop")
    try:
        return Crop(**given)
    except ValueError as error:
        raise PumitError(str(error)) from None


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
    crop_of(recipe)
    degrees(recipe)
    if recipe.get("real_images") and "real_folder" not in recipe:
        raise PumitError(f"{name} has real_images but no real_folder; say where they lie.")


def image_source(recipe: Mapping[str, Any], setting: Setting) -> ImageSource:
    """Where the images of a recipe come from.

    `real_images` are patterns below `real_folder`; without them all images are generated.

    Raises:
        PumitError: If there are none.
    """
    images = None
    if recipe.get("real_images"):
        folder = setting.real_folder or Path(recipe["real_folder"]).expanduser()
        if not folder.is_dir():
            raise PumitError(
                f"real_folder {folder.name} is missing; remove real_images to go without."
            )
        images = RealImages(find_images(folder, recipe["real_images"]))
    return ImageSource(
        crop_of(recipe),
        images=images,
        real_share=float(recipe.get("real_share", 0.6)),
        batch_size=int(recipe.get("batch_size", 4)),
        generated_size=int(recipe.get("generated_size", 64)),
    )


def find_images(folder: Path, patterns: list[str]) -> list[tuple[Path, str]]:
    """Files that match any of the patterns, each once, with a short name for messages.

    Raises:
        PumitError: If a pattern matches nothing.
    """
    found: dict[Path, str] = {}
    for pattern in patterns:
        # A pattern may begin with "..": data sets lie beside each other.
        base = folder
        while pattern.startswith("../"):
            base, pattern = base.parent, pattern[3:]
        matches = sorted(base.glob(pattern))
        if not matches:
            raise PumitError(f"No image matches {pattern!r} in {base.name}; check real_images.")
        for path in matches:
            found.setdefault(path, f"{path.parent.name}/{path.name}")
    return list(found.items())
