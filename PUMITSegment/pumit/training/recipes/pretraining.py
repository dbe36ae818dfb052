"""Recipes of `pumit pretrain`, one for each objective."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from pumit.errors import PumitError
from pumit.training.recipes.model import AtLeastOne, RecipeModel, Shares, TrainingRecipe

# Shares of the patches that are masked, as published.
MASK_RATIO, MAMBA_MASK_RATIO = 0.55, 0.75
# A tokenizer that is trained first, on the same images.
OWN_TOKENIZER = "own"


class PretrainingRecipe(TrainingRecipe):
    """Keys of every pre-training.

    Attributes:
        task: pretraining: learn without labels.
        network: Network to train.
        batch_size: Images of a step; more of small or thin ones.
        register: Whether the model enters your index.
    """

    task: Literal["pretraining"] = "pretraining"
    network: str = "promptable"
    batch_size: AtLeastOne = 4
    register_: bool = Field(False, alias="register")


class RealSet(RecipeModel):
    """A further folder of cases.

    Attributes:
        folder: The folder, below `real_folder`.
        tiers: Tiers of its `index.json` that are drawn from; all without.
        without: Data sets of its `index.json` that are kept back.
        cases: Names of cases, instead of tiers.
    """

    folder: str
    tiers: list[str] = Field(default_factory=list)
    without: list[str] = Field(default_factory=list)
    cases: list[str | int] | None = None


class PromptableRecipe(PretrainingRecipe):
    """Recipe of the promptable network.

    Attributes:
        scene_device: Device that generates scans; auto for that of the network.
        compile: Whether the image encoder is compiled.
        targets_per_field: Structures to be segmented in a field.
        real_share: Share of fields from real scans.
        real_folder: Folder of the real scans; without `real_cases` all that are in it, unlabelled.
        real_cases: Folders of cases below it.
        real_unlabelled: Images without labels.
        real_sets: Further folders of cases.
        real_shares: Share of a data set among the real scans, by name; others share the rest.
        unlabelled_targets: Share of targets in real scans that are pieces of the image itself.
        label_maps: Label maps of real anatomy, as paths or patterns below `real_folder`.
        map_share: Share of fields generated from label maps.
        heart_share: Share of the generated scans of thick slices and the images with a heart in
            its chest; of others half as many.
        trunk_share: Share of the other generated scans with a trunk and its organs.
        field_sizes: In-plane voxels of fields with their share of the steps; the network's without.
        rounds: Answers per target with their share of the steps.
        stability_weight: Weight of keeping right, after a correction, what the answer before had
            right.
        upright: Share of fields of labelled structures that lie as their scan does.
        more_fields: Fields that teach classes only, for each field with targets.
        largest_field: In-plane voxels of the largest field of the finished model's inference:
            one of few slices may be larger than those of training. Chosen on whole scans; the same
            as in training without.
        averages_fields: Whether a first answer of the finished model is averaged over the fields
            that mean the same structure. Chosen on whole scans, too.
        generated_classes: Whether scans generated from label maps, and generated hearts and trunks,
            teach classes, too.
    """

    scene_device: str = "cpu"
    compile: bool = False
    targets_per_field: AtLeastOne = 2
    real_share: float = 0.35
    real_folder: str | None = None
    real_cases: list[str] = Field(default_factory=list)
    real_unlabelled: list[str] = Field(default_factory=list)
    real_sets: list[RealSet] = Field(default_factory=list)
    real_shares: dict[str, float] = Field(default_factory=dict)
    unlabelled_targets: float | None = None
    label_maps: list[str] = Field(default_factory=list)
    map_share: float = 0.0
    heart_share: float = 0.1
    trunk_share: float = 0.2
    field_sizes: Shares | None = None
    rounds: Shares | None = None
    stability_weight: float = 0.0
    upright: float = 0.0
    more_fields: float = 0.0
    generated_classes: bool = False
    largest_field: AtLeastOne | None = None
    averages_fields: bool = False

    @model_validator(mode="after")
    def _require_folder_and_shares(self) -> PromptableRecipe:
        if self.real_cases and self.real_folder is None:
            raise PumitError("The recipe has real_cases but no real_folder; say where they lie.")
        shares = self.real_shares.values()
        if any(not 0 <= share <= 1 for share in shares) or sum(shares) > 1:
            raise PumitError("real_shares must lie between 0 and 1, and come to 1 at most.")
        return self


class CropSize(RecipeModel):
    """Size of the crops of an isotropic image; thicker slices are fewer.

    Attributes:
        depth: Slices at isotropic spacing, a multiple of 16.
        in_plane: Rows and columns, a multiple of 16.
    """

    depth: int = 64
    in_plane: int = 128


class ImagePattern(RecipeModel):
    """Files of images.

    Attributes:
        pattern: Pattern of paths below `real_folder`.
        weight: Weight of all its files together; by default as many as there are.
        depth_axis: The publisher's word on the depth axis.
    """

    pattern: str
    weight: float | None = None
    depth_axis: str | None = None


def _rows_of_crops(value: Any) -> Any:
    if value == []:
        raise PumitError("crop is empty; give a size, or leave it out.")
    rows = [value] if isinstance(value, Mapping) else value
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, (Mapping, CropSize)):
            raise PumitError(f"Each crop needs depth and in_plane, got {row!r}.")
    return rows


def _rows_of_images(value: Any) -> Any:
    rows = value if isinstance(value, list) else []
    for row in rows:
        is_row = isinstance(row, Mapping) and (set(row) - {"weight", "depth_axis"})
        if not isinstance(row, (str, ImagePattern)) and not is_row:
            raise PumitError(f"Each of real_images is a pattern, or has one; got {row!r}.")
    return [{"pattern": row} if isinstance(row, str) else row for row in rows] or value


class ImageRecipe(PretrainingRecipe):
    """Keys of all objectives that learn from images without labels.

    Attributes:
        crop: Size of the crops, or a list of which each step draws one.
        degrees: Degrees of anisotropy with their share of the steps.
        real_share: Share of real images; the others are generated.
        real_folder: Folder of the real images, such as `--on` names.
        real_images: Patterns below it, or keys with one, a `weight` and a `depth_axis`; without,
            all scans that are in it, DICOM series too.
        generated_size: In-plane voxels of generated images before they are enlarged.
        cache: Folder for prepared images.
        images_in_memory: Images that stay in memory, most.
    """

    crop: Annotated[list[CropSize], BeforeValidator(_rows_of_crops)] = Field(
        default_factory=lambda: [CropSize()]
    )
    degrees: Shares | None = None
    real_share: float = 0.6
    real_folder: str | None = None
    real_images: Annotated[list[ImagePattern] | None, BeforeValidator(_rows_of_images)] = None
    generated_size: int = 64
    cache: str | None = None
    images_in_memory: int = 64

    @model_validator(mode="after")
    def _require_folder(self) -> ImageRecipe:
        if self.real_images and self.real_folder is None:
            raise PumitError("The recipe has real_images but no real_folder; say where they lie.")
        return self


class TokenizerLoss(RecipeModel):
    """Weights of the tokenizer's objective.

    Attributes:
        even: Weight of the negative entropy of the mean token distribution (lambda_1).
        sharp: Weight of the mean entropy of the token distributions (lambda_2).
        entropy_floor: Mean entropy, nats, below which tokens are not sharpened any more.
        squared: Weight of the mean squared error in addition to the absolute one.
        perceptual: Weight of the perceptual loss.
        adversarial: Weight of the adversarial term where the gate is open.
        gate: The gate is open while the discriminator's running loss is at most this.
        discriminator_rate: Learning rate of the discriminator over the tokenizer's.
        momentum: Momentum of the running loss.

    Source:
        PUMIT, eq. 4 and 5; values of the published command. `entropy_floor` and `squared` are
        ours, and zero there: a short training learns detail sooner from squared errors, and
        tokens as soft as the published ones (4.14 nats) keep more of it than sharp ones.
    """

    even: float = 0.03
    sharp: float = 1.0
    entropy_floor: float = 0.0
    squared: float = 0.0
    perceptual: float = 1.0
    adversarial: float = 0.003
    gate: float = 0.025
    discriminator_rate: float = 10.0
    momentum: float = 0.9


class TokenizerRecipe(ImageRecipe):
    """Recipe of the visual tokenizer.

    Attributes:
        loss: Weights of the loss's terms.
        codebook_range: Entries of the codebook begin uniform between minus and plus this.
        logit_gain: Factor on the initial projection to logits.
        discriminator: Whether a discriminator takes part.
        discriminator_sizes: Its sizes, where they are not the usual ones.
        perceptual: Network of the perceptual loss: none, vgg16 or default.
        perceptual_weights: Its weights, by name or file.
    """

    loss: TokenizerLoss = TokenizerLoss()
    codebook_range: float | None = None
    logit_gain: float = 1.0
    discriminator: bool = True
    discriminator_sizes: dict[str, Any] = Field(default_factory=dict)
    perceptual: str = "none"
    perceptual_weights: str | None = None


class MimRecipe(ImageRecipe):
    """Recipe of the universal ViT by masked image modelling.

    Attributes:
        tokenizer: Tokenizer whose tokens are predicted, by name or file; own trains one first on
            the same images.
        mask_ratio: Share of hidden patches, between 0 and 1.
        eva02: Published weights to begin with, a safetensors file.
    """

    tokenizer: str = "tokenizer"
    mask_ratio: float = MASK_RATIO
    eva02: str | None = None

    @model_validator(mode="after")
    def _require_one_beginning(self) -> MimRecipe:
        require_ratio(self.mask_ratio)
        if self.initial is not None and self.eva02 is not None:
            raise PumitError("The recipe has both initial and eva02; begin with one of them.")
        return self


class SwinSslRecipe(ImageRecipe):
    """Recipe of Swin UNETR's self-supervision."""

    # Thick slices are too few for five halvings.
    degrees: Shares = Field({0: 1.0})
    # Views of a crop are distinguished from those of another.
    batch_size: Annotated[int, Field(ge=2)] = 4


class MambaMimRecipe(ImageRecipe):
    """Recipe of MambaMIM.

    Attributes:
        mask_ratio: Share of hidden cells, between 0 and 1.
    """

    # Thick slices are too few for four halvings.
    degrees: Shares = Field({0: 1.0})
    mask_ratio: float = MAMBA_MASK_RATIO

    @model_validator(mode="after")
    def _require_ratio(self) -> MambaMimRecipe:
        require_ratio(self.mask_ratio)
        return self


# Network to the recipe of its objective.
PRETRAINING: dict[str, type[PretrainingRecipe]] = {
    "mamba_mim": MambaMimRecipe,
    "mamba_mim_small": MambaMimRecipe,
    "mamba_mim_unetr": MambaMimRecipe,
    "mamba_mim_unetr_small": MambaMimRecipe,
    "promptable": PromptableRecipe,
    "pumit_tokenizer": TokenizerRecipe,
    "pumit_tokenizer_small": TokenizerRecipe,
    "pumit_vit_b_mim": MimRecipe,
    "pumit_vit_small_mim": MimRecipe,
    "swin_ssl": SwinSslRecipe,
    "swin_ssl_small": SwinSslRecipe,
}


def require_ratio(ratio: float) -> None:
    """Raise PumitError for a share of hidden places that hides none or all."""
    if not 0 < ratio < 1:
        raise PumitError(f"mask_ratio must lie between 0 and 1, got {ratio}.")
