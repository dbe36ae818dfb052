"""Construction of networks by name; the only place with network sizes."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pumit.errors import PumitError

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class NetworkRecipe:
    """Class and default sizes of a network.

    Attributes:
        module: Module of the class, imported only when the network is built.
        class_name: Class; its keyword arguments are the keys of `sizes`.
        sizes: Published sizes; the only keys that can be overridden.
        earlier: Defaults for older checkpoints that lack a size, if different from `sizes`.
        dropped: Sizes in older checkpoints that no longer exist.
        renewed_by: Module whose `renewed` converts weights of earlier versions; empty if there is
            nothing to convert.
    """

    module: str
    class_name: str
    sizes: Mapping[str, Any]
    earlier: Mapping[str, Any] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    renewed_by: str = ""


_VIT_B = {
    "in_channels": 3,
    "dim": 768,
    "depth": 12,
    "num_heads": 12,
    "hidden": 2048,
    "position_table": (5, 10, 10),  # patches of an 80 x 160 x 160 field
    "train_tokens": None,
}
_VIT_B_UNIVERSAL = {**_VIT_B, "patch_halvings": 4}
_TOKENIZER_CODEBOOK = 1024
_TOKENIZER = {"in_channels": 3, "num_tokens": _TOKENIZER_CODEBOOK, "groups": 8}
_SEGMENTATION = {
    **_VIT_B,
    "fixed_patch": (4, 16, 16),
    "detail_widths": (32, 64),
    "pyramid_widths": (128, 256, 512, 512),
    "taps": (4, 6, 8, 12),
    "num_supervised_levels": 4,
    "head_width": 0,
}

# Universal ViT small enough to pre-train and fine-tune on two CPU cores.
_VIT_SMALL = {**_VIT_B, "dim": 192, "depth": 8, "num_heads": 6, "hidden": 512}

_SWIN = {
    "feature_size": 48,
    "depths": (2, 2, 2, 2),
    "num_heads": (3, 6, 12, 24),
    "window_size": 7,
    "drop_path": 0.0,
    "merging": "current",
}

# Half the width; windows of 4 tokens need a third of the time and memory on a CPU.
_SWIN_SMALL = {**_SWIN, "feature_size": 24, "window_size": 4}
_SWIN_SSL = {**_SWIN, "in_channels": 1, "contrast_size": 512, "official_tokens": False}

# nnFormer: three published configurations, and one that two CPU cores can train.
_NNFORMER: dict[str, Any] = {
    "depths": (2, 2, 2, 2),
    "mlp_ratio": 4,
    "drop_path": 0.2,
    "num_supervised_levels": 1,
    "rounds_down": False,
    "official_index": False,
    "official_unmasked_shift": False,
}
_NNFORMER_CUBES = {
    **_NNFORMER,
    "merges": ((2, 2, 2),) * 3,
    "windows": ((4, 4, 4), (4, 4, 4), (8, 8, 8), (4, 4, 4)),
}

# The default model: small enough for interactive use on two CPU cores.
PROMPTABLE: dict[str, Any] = {
    "widths": (16, 32, 64),
    "dim": 192,
    "depth": 6,
    "num_heads": 6,
    "field_size": 48,
    "num_masks": 4,
    "num_decoder_blocks": 2,
    "geodesic": False,
    "class_channels": 0,
    "num_classes": 0,
    "qk_norm": False,
}

_HYMAMBA = {
    "in_channels": 1,
    "num_classes": 14,
    "stem_width": 32,
    "widths": (64, 128, 192, 384),
    "depths": (2, 2, 2, 1),
    "expansions": (2, 4, 4, 4),
    "poolings": ((2, 2, 2),) * 4,
    "num_layers": 4,
    "mlp_ratio": 2,
    "state": 16,
    "conv": 4,
    "expand": 2,
    "dt_rank": 24,
    "last_width": 32,
    "last_norm": "layer",
}
_HYMAMBA_SMALL = {"stem_width": 8, "widths": (16, 32, 64, 96), "dt_rank": 6}
_HYMAMBA_ONLY = ("num_classes", "last_width", "last_norm")
# Pre-training has the encoder's sizes.
_MAMBA_MIM = {
    **{key: size for key, size in _HYMAMBA.items() if key not in _HYMAMBA_ONLY},
    "official_compat": False,
}

_RENEWED_MAMBA: dict[str, Any] = {
    "dropped": ("unused",),
    "renewed_by": "pumit.networks.mamba_mim.hymamba",
}

_UNETR_MAMBA = {
    "in_channels": 1,
    "num_classes": 14,
    "patch": (16, 16, 16),
    "dim": 768,
    "taps": (3, 6, 9, 12),
    "feature_size": 16,
    "state": 16,
    "conv": 4,
    "expand": 2,
    "dt_rank": 48,
}
_UNETR_MAMBA_SMALL = {"dim": 144, "dt_rank": 9}
_UNETR_MIM = {
    **{k: size for k, size in _UNETR_MAMBA.items() if k not in ("num_classes", "feature_size")},
    "official_compat": False,
}

RECIPES: dict[str, NetworkRecipe] = {
    "pumit_tokenizer": NetworkRecipe(
        "pumit.networks.pumit.tokenizer",
        "VisualTokenizer",
        {**_TOKENIZER, "widths": (128, 256, 512)},
    ),
    "pumit_tokenizer_small": NetworkRecipe(
        "pumit.networks.pumit.tokenizer",
        "VisualTokenizer",
        {**_TOKENIZER, "widths": (48, 96, 192)},
    ),
    "pumit_discriminator": NetworkRecipe(
        "pumit.networks.pumit.tokenizer",
        "PatchDiscriminator",
        {"in_channels": 3, "widths": (128, 256, 512), "groups": 16},
    ),
    "pumit_vit_b": NetworkRecipe("pumit.networks.pumit.vit", "UniversalViT", _VIT_B_UNIVERSAL),
    "pumit_vit_b_mim": NetworkRecipe(
        "pumit.networks.pumit.vit",
        "MaskedImageModel",
        {**_VIT_B_UNIVERSAL, "num_tokens": _TOKENIZER_CODEBOOK},
    ),
    "pumit_vit_small_mim": NetworkRecipe(
        "pumit.networks.pumit.vit",
        "MaskedImageModel",
        {**_VIT_SMALL, "patch_halvings": 4, "num_tokens": _TOKENIZER_CODEBOOK},
    ),
    "pumit_segmentation_small": NetworkRecipe(
        "pumit.networks.pumit.segmentation_network",
        "SegmentationNetwork",
        {
            **_SEGMENTATION,
            **_VIT_SMALL,
            "in_channels": 1,
            "num_classes": 2,
            "detail_widths": (16, 32),
            "pyramid_widths": (48, 96, 128, 128),
            "taps": (2, 4, 6, 8),
            "head_width": 64,
        },
    ),
    "pumit_encoder_small": NetworkRecipe(
        "pumit.networks.promptable.segmentation",
        "EncodedSegmentation",
        # Same image encoder as the shipped promptable model, to initialise from its weights.
        {
            "in_channels": 1,
            "num_classes": 2,
            **{key: PROMPTABLE[key] for key in ("widths", "dim", "depth", "num_heads")},
            "train_tokens": (PROMPTABLE["field_size"] // 8) ** 3,
            "class_channels": 24,
            "da0": 0,
            "num_supervised_levels": 3,
            "head_width": 64,
        },
    ),
    "pumit_segmentation_btcv": NetworkRecipe(
        "pumit.networks.pumit.segmentation_network",
        "SegmentationNetwork",
        # 48 x 192 x 192 crops of CT at 3 x 0.75 x 0.75 mm; 13 organs and the background.
        {**_SEGMENTATION, "in_channels": 1, "num_classes": 14, "position_table": (12, 12, 12)},
    ),
    "pumit_segmentation_chaos": NetworkRecipe(
        "pumit.networks.pumit.segmentation_network",
        "SegmentationNetwork",
        # 32 x 192 x 192 crops of MR at 9 x 1.62 x 1.62 mm, two phases; 4 organs, background.
        {**_SEGMENTATION, "in_channels": 2, "num_classes": 5, "position_table": (8, 12, 12)},
    ),
    "pumit_classifier_b": NetworkRecipe(
        "pumit.networks.pumit.vit",
        "VitClassifier",
        # 160^3 images; 11 classes as in OrganMNIST3D, the largest of the MedMNIST3D tasks.
        {**_VIT_B, "fixed_patch": (16, 16, 16), "position_table": (10, 10, 10), "num_classes": 11},
    ),
    "pumit_classifier_small": NetworkRecipe(
        "pumit.networks.pumit.vit",
        "VitClassifier",
        {
            **_VIT_B,
            **_VIT_SMALL,
            "fixed_patch": (16, 16, 16),
            "position_table": (4, 4, 4),  # 64^3 images
            "num_classes": 2,
        },
    ),
    "nnformer_synapse": NetworkRecipe(
        "pumit.networks.nnformer.network",
        "NnFormer",
        # 64 x 128 x 128 crops of CT at 3 x 0.76 x 0.76 mm; 13 organs and the background.
        {
            **_NNFORMER_CUBES,
            "in_channels": 1,
            "num_classes": 14,
            "dim": 192,
            "patch": (2, 4, 4),
            "num_heads": (6, 12, 24, 48),
            "decoder_num_heads": (6, 12, 24),
            "num_supervised_levels": 3,
        },
    ),
    "nnformer_tumor": NetworkRecipe(
        "pumit.networks.nnformer.network",
        "NnFormer",
        # 128^3 crops of MR in four sequences at 1 mm; 3 parts of a tumour and the background.
        {
            **_NNFORMER_CUBES,
            "in_channels": 4,
            "num_classes": 4,
            "dim": 96,
            "patch": (4, 4, 4),
            "num_heads": (3, 6, 12, 24),
            "decoder_num_heads": (6, 12, 24),  # as published: twice the encoder's
        },
    ),
    "nnformer_acdc": NetworkRecipe(
        "pumit.networks.nnformer.network",
        "NnFormer",
        # 14 x 160 x 160 crops of MR at 6.35 x 1.52 x 1.52 mm; 3 parts of a heart, background.
        {
            **_NNFORMER,
            "in_channels": 1,
            "num_classes": 4,
            "dim": 96,
            "patch": (1, 4, 4),
            "merges": ((1, 2, 2), (2, 2, 2), (2, 2, 2)),
            "rounds_down": True,  # 7 slices to 3
            "num_heads": (3, 6, 12, 24),
            "decoder_num_heads": (3, 6, 12),
            "windows": ((3, 5, 5), (3, 5, 5), (7, 10, 10), (3, 5, 5)),
        },
        earlier={"rounds_down": False},
    ),
    "nnformer_small": NetworkRecipe(
        "pumit.networks.nnformer.network",
        "NnFormer",
        {
            **_NNFORMER_CUBES,
            "in_channels": 1,
            "num_classes": 2,
            "dim": 32,
            "patch": (2, 2, 2),
            "num_heads": (2, 4, 8, 16),
            "decoder_num_heads": (2, 4, 8),
            "drop_path": 0.1,
            "num_supervised_levels": 3,
        },
    ),
    "swin_unetr": NetworkRecipe(
        "pumit.networks.swin_unetr",
        "SwinUnetr",
        # 96^3 crops of CT; 13 organs of BTCV and the background.
        {**_SWIN, "in_channels": 1, "num_classes": 14, "spatial_dims": 3},
    ),
    "swin_unetr_small": NetworkRecipe(
        "pumit.networks.swin_unetr",
        "SwinUnetr",
        {**_SWIN_SMALL, "in_channels": 1, "num_classes": 2, "spatial_dims": 3},
    ),
    "swin_ssl": NetworkRecipe("pumit.networks.swin_ssl", "SwinSsl", _SWIN_SSL),
    "swin_ssl_small": NetworkRecipe(
        "pumit.networks.swin_ssl", "SwinSsl", {**_SWIN_SSL, **_SWIN_SMALL}
    ),
    "basic_unet": NetworkRecipe(
        "pumit.networks.basic_unet",
        "PlainUnet",
        {
            "in_channels": 1,
            "num_classes": 2,
            "features": (32, 32, 64, 128, 256, 32),
            "spatial_dims": 3,
        },
    ),
    "hymamba": NetworkRecipe(
        "pumit.networks.mamba_mim.hymamba",
        "HyMamba",
        # 96^3 crops of CT at 1.5 mm; 13 organs of BTCV and the background.
        _HYMAMBA,
        earlier={"last_norm": "instance"},
        **_RENEWED_MAMBA,
    ),
    "hymamba_small": NetworkRecipe(
        "pumit.networks.mamba_mim.hymamba",
        "HyMamba",
        {**_HYMAMBA, **_HYMAMBA_SMALL, "num_classes": 2, "last_width": 16},
        earlier={"last_norm": "instance"},
        **_RENEWED_MAMBA,
    ),
    "mamba_mim": NetworkRecipe(
        "pumit.networks.mamba_mim.mamba_mim",
        "HyMambaMim",
        {**_MAMBA_MIM, "decoder_widths": (768, 384, 192, 96, 48)},
        **_RENEWED_MAMBA,
    ),
    "mamba_mim_small": NetworkRecipe(
        "pumit.networks.mamba_mim.mamba_mim",
        "HyMambaMim",
        {**_MAMBA_MIM, **_HYMAMBA_SMALL, "decoder_widths": (96, 64, 32, 16, 8)},
        **_RENEWED_MAMBA,
    ),
    "unetr_mamba": NetworkRecipe(
        "pumit.networks.mamba_mim.unetr_mamba",
        "UnetrMamba",
        # UNETR's widths; 96^3 crops of CT; 13 organs of BTCV and the background.
        _UNETR_MAMBA,
    ),
    "unetr_mamba_small": NetworkRecipe(
        "pumit.networks.mamba_mim.unetr_mamba",
        "UnetrMamba",
        {**_UNETR_MAMBA, **_UNETR_MAMBA_SMALL, "num_classes": 2, "feature_size": 12},
    ),
    "mamba_mim_unetr": NetworkRecipe(
        "pumit.networks.mamba_mim.mamba_mim",
        "UnetrMambaMim",
        {**_UNETR_MIM, "decoder_widths": (768, 384, 192, 96, 48)},
    ),
    "mamba_mim_unetr_small": NetworkRecipe(
        "pumit.networks.mamba_mim.mamba_mim",
        "UnetrMambaMim",
        {**_UNETR_MIM, **_UNETR_MAMBA_SMALL, "decoder_widths": (96, 64, 32, 16, 8)},
    ),
    "sam": NetworkRecipe(
        "pumit.networks.ba_sam_transformers",
        "BaSam",
        # SAM's ViT-B with BA-SAM's attention; needs the transformers package.
        {
            "image_size": 1024,
            "patch": 16,
            "dim": 768,
            "depth": 12,
            "num_heads": 12,
            "hidden": 3072,
            "global_blocks": (2, 5, 8, 11),
            "window": 14,
            "width": 256,
            "decoder_hidden": 2048,
            "decoder_heads": 8,
        },
    ),
    "promptable": NetworkRecipe(
        "pumit.networks.promptable.network", "PromptableNetwork", PROMPTABLE
    ),
}


def stored_sizes(name: str, sizes: Any) -> Any:
    """Return a checkpoint's network sizes, completed for checkpoints of earlier versions.

    Invalid sizes, as in a damaged file, are returned unchanged; `build_network` rejects them.
    """
    if name not in RECIPES or not isinstance(sizes, Mapping):
        return sizes
    recipe = RECIPES[name]
    return {**recipe.earlier, **{k: v for k, v in sizes.items() if k not in recipe.dropped}}


def stored_state(name: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Convert a checkpoint's weights to the network's current layout."""
    if name not in RECIPES or not RECIPES[name].renewed_by:
        return state
    renewed: dict[str, Tensor] = import_module(RECIPES[name].renewed_by).renewed(state)
    return renewed


def build_network(name: str, **overrides: Any) -> nn.Module:
    """Build a network with its published sizes, or with some overridden.

    Args:
        name: A key of `RECIPES`.
        overrides: Sizes to change; lists are converted to tuples.

    Returns:
        The network, randomly initialised, on torch's current default device.

    Raises:
        PumitError: If the name or an override is unknown, or the sizes do not fit together.
    """
    if name not in RECIPES:
        raise PumitError(f"Unknown network {name!r}{_nearest(name, RECIPES)}")
    recipe = RECIPES[name]
    for key in overrides:
        if key not in recipe.sizes:
            raise PumitError(f"Network {name!r} has no size {key!r}{_nearest(key, recipe.sizes)}")
    network_class = getattr(import_module(recipe.module), recipe.class_name)
    sizes = {**recipe.sizes, **overrides}
    sizes = {key: tuple(v) if isinstance(v, list) else v for key, v in sizes.items()}
    try:
        network: nn.Module = network_class(**sizes)
    except (ArithmeticError, TypeError, ValueError, RuntimeError) as error:
        if not overrides:  # the published sizes fit: this is a bug
            raise
        raise PumitError(f"Cannot build {name!r} with {overrides}: {error}") from error
    return network


def _nearest(given: str, known: Mapping[str, Any]) -> str:
    match = difflib.get_close_matches(given, known, n=1)
    guess = f"; did you mean {match[0]!r}?" if match else "."
    return f"{guess} Known: {', '.join(sorted(known)) or 'none'}."
