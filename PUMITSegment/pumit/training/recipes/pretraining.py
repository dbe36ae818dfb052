"""Recipes of `pumit pretrain`, one per objective."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from pumit.errors import PumitError
from pumit.training.recipes.model import AtLeastOne, RecipeModel, Shares
from pumit.training.recipes.training import TrainingRecipe

Ratio = Annotated[float, Field(gt=0, lt=1)]
# Published mask ratios.
MASK_RATIO, MAMBA_MASK_RATIO = 0.55, 0.75
# Value of `tokenizer` that trains one first, on the same images.
OWN_TOKENIZER = "own"


class PretrainingRecipe(TrainingRecipe):
    """Keys of every pre-training.

    Attributes:
        task: pretraining: learn without labels.
        network: Network to train.
        batch_size: Images per step; more if they are small or thin.
        register: Whether to add the model to your index.
    """

    task: Literal["pretraining"] = "pretraining"
    network: str = "promptable"
    batch_size: AtLeastOne = 4
    register_: bool = Field(False, alias="register")


class RealSet(RecipeModel):
    """An additional folder of cases.

    Attributes:
        folder: The folder, relative to `real_folder`.
        tiers: Tiers of its `index.json` to use; all by default.
        without: Data sets of its `index.json` to leave out.
        cases: Names of cases, instead of tiers.
    """

    folder: str
    tiers: list[str] = Field(default_factory=list)
    without: list[str] = Field(default_factory=list)
    cases: list[str | int] | None = None


class PromptableRecipe(PretrainingRecipe):
    """Recipe of the promptable network.

    Attributes:
        scene_device: Device that generates scans; auto for the network's device.
        compile: Whether to compile the image encoder.
        targets_per_field: Structures to segment per field.
        real_share: Share of fields from real scans.
        real_folder: Folder of real scans; without `real_cases`, all its scans, unlabelled.
        real_cases: Folders of cases, relative to `real_folder`.
        real_unlabelled: Images without labels.
        real_sets: Additional folders of cases.
        real_shares: Data set to its share of the real scans; the other sets share the rest.
        unlabelled_targets: Share of targets in real scans that are pieces of the image itself.
        label_maps: Label maps of real anatomy, as paths or patterns relative to `real_folder`.
        map_share: Share of fields generated from label maps.
        heart_share: Share of generated scans with thick slices and of generated images that show a
            heart in the chest; half this share of other generated scans.
        trunk_share: Share of the other generated scans that show a trunk and its organs.
        field_sizes: In-plane size of fields in voxels to its share of the steps; by default the
            network's own.
        rounds: Number of predictions per target to its share of the steps.
        stability_weight: Weight of the penalty on correct voxels that a correction makes wrong.
        upright: Share of fields of labelled structures that keep the orientation of their scan.
        more_fields: Fields used for class learning only, per field with targets.
        largest_field: In-plane size of the largest field at inference, voxels; fields of few slices
            may be larger than in training. Chosen on whole scans; the default is the size in
            training.
        averages_fields: Whether inference averages the first prediction over fields that show the
            same structure. Chosen on whole scans.
        generated_classes: Whether classes are also learnt from scans generated from label maps, and
            from generated hearts and trunks.
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
    """Crop size for isotropic images; with thicker slices there are fewer of them.

    Attributes:
        depth: Number of slices at isotropic spacing, a multiple of 16.
        in_plane: Number of rows and of columns, a multiple of 16.
    """

    depth: int = 64
    in_plane: int = 128

    @model_validator(mode="after")
    def _require_whole_tokens(self) -> CropSize:
        if min(self.depth, self.in_plane) < 16 or self.depth % 16 or self.in_plane % 16:
            raise PumitError(
                f"Crops must be multiples of 16, got {self.depth} x {self.in_plane} voxels."
            )
        return self


class ImagePattern(RecipeModel):
    """A pattern of image files.

    Attributes:
        pattern: Pattern of paths relative to `real_folder`.
        weight: Sampling weight of all its files together; the default is their number.
        depth_axis: Depth axis as the publisher states it.
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
        crop: Crop size, or a list from which each step draws one.
        degrees: Degree of anisotropy to its share of the steps.
        real_share: Share of real images; the others are generated.
        real_folder: Folder of real images, as `--on` sets it.
        real_images: Patterns relative to `real_folder`, or rows of `pattern`, `weight` and
            `depth_axis`; by default all its scans, including DICOM series.
        generated_size: In-plane size of generated images before they are enlarged, voxels.
        cache: Cache folder for pre-processed images.
        images_in_memory: Maximum number of images kept in memory.
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
        entropy_floor: Mean entropy, nats, below which tokens are no longer sharpened.
        squared: Weight of the mean squared error, added to the absolute error.
        perceptual: Weight of the perceptual loss.
        adversarial: Weight of the adversarial term while the gate is open.
        gate: Largest running loss of the discriminator at which the gate is open.
        discriminator_rate: Ratio of the discriminator's learning rate to the tokenizer's.
        momentum: Momentum of the running loss.

    Source:
        PUMIT, eq. 4 and 5; values of the published command.

    Differs from the source:
        `entropy_floor` and `squared` are additions; zero gives the published loss. Squared
        errors teach detail sooner in a short training, and tokens as soft as the published ones
        (4.14 nats) keep more detail than sharp ones.
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
        loss: Weights of the loss terms.
        codebook_range: Half-width of the uniform distribution that initialises the codebook.
        logit_gain: Factor on the initial projection to logits.
        discriminator: Whether to train with a discriminator.
        discriminator_sizes: Discriminator sizes that override the defaults.
        perceptual: Network of the perceptual loss: none, vgg16 or default.
        perceptual_weights: Weights of the perceptual network, by name or file.
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
        mask_ratio: Fraction of masked patches, between 0 and 1.
        eva02: Published EVA-02 weights to start from, a safetensors file.
    """

    tokenizer: str = "tokenizer"
    mask_ratio: Ratio = MASK_RATIO
    eva02: str | None = None

    @model_validator(mode="after")
    def _require_one_beginning(self) -> MimRecipe:
        if self.initial is not None and self.eva02 is not None:
            raise PumitError("The recipe has both initial and eva02; begin with one of them.")
        return self


class SwinSslRecipe(ImageRecipe):
    """Recipe of Swin UNETR's self-supervised pre-training."""

    # Volumes of thick slices have too few slices to be halved five times.
    degrees: Shares = Field({0: 1.0})
    # The contrastive loss needs views of at least two crops.
    batch_size: Annotated[int, Field(ge=2)] = 4


class MambaMimRecipe(ImageRecipe):
    """Recipe of MambaMIM.

    Attributes:
        mask_ratio: Fraction of masked cells, between 0 and 1.
    """

    # Volumes of thick slices have too few slices to be halved four times.
    degrees: Shares = Field({0: 1.0})
    mask_ratio: Ratio = MAMBA_MASK_RATIO


# Network to the recipe of its pre-training objective.
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
