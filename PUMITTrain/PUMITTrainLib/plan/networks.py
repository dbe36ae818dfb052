"""Networks for automatic segmentation that the user can choose."""

from __future__ import annotations

from dataclasses import dataclass

from slicer.i18n import tr as _


@dataclass(frozen=True)
class NetworkChoice:
    """Network that the user can choose.

    Attributes:
        name: Name in a recipe.
        title: Name for the user.
        tooltip: Purpose and size.
    """

    name: str
    title: str
    tooltip: str


def networkChoices() -> tuple[NetworkChoice, ...]:
    """Return the networks of `pumit train`, those for any data and computer first."""
    return (
        _choice(
            "pumit_segmentation_small",
            _("PUMIT, small"),
            _("PUMIT's own network in a size for a computer without a large GPU"),
            7,
        ),
        _choice(
            "pumit_encoder_small",
            _("PUMIT, from what it knows"),
            _("Begins with the encoder of PUMIT Segment's clicks; for few labelled cases"),
            4,
        ),
        _choice(
            "basic_unet",
            _("U-Net (MONAI)"),
            _("The plain U-Net of MONAI: dependable, and quick on small data sets"),
            6,
        ),
        _choice(
            "nnformer_small",
            _("nnFormer, small"),
            _("Attention within and between small volumes, in a size for any computer"),
            4,
        ),
        _choice(
            "hymamba_small",
            _("HyMamba, small"),
            _(
                "Convolutions above, state-space layers below; can begin with an encoder that "
                "MambaMIM has pre-trained on scans without labels"
            ),
            3,
        ),
        _choice(
            "unetr_mamba_small",
            _("UNETR-Mamba, small"),
            _("State-space layers over coarse patches; for large structures and many cases"),
            4,
        ),
        _choice(
            "swin_unetr_small",
            _("Swin UNETR, small (MONAI)"),
            _(
                "Shifted windows, half as wide as published; can begin with public weights, and is "
                "slow without a GPU"
            ),
            16,
        ),
        *_published(),
    )


def _published() -> tuple[NetworkChoice, ...]:
    return (
        _choice(
            "pumit_segmentation_btcv",
            _("PUMIT, as published for CT"),
            _("The size that was published for the BTCV abdomen; needs a large GPU"),
            134,
        ),
        _choice(
            "pumit_segmentation_chaos",
            _("PUMIT, as published for MR"),
            _("The size that was published for the CHAOS abdomen; needs a large GPU"),
            134,
        ),
        _choice(
            "nnformer_synapse",
            _("nnFormer, as published for CT"),
            _("The size that was published for the Synapse abdomen; needs a large GPU"),
            150,
        ),
        _choice(
            "nnformer_tumor",
            _("nnFormer, as published for brain tumours"),
            _("The size that was published for tumours in four sequences of MR; needs a GPU"),
            38,
        ),
        _choice(
            "nnformer_acdc",
            _("nnFormer, as published for the heart"),
            _("The size that was published for thick slices of heart MR; needs a GPU"),
            37,
        ),
        _choice(
            "hymamba",
            _("HyMamba, as published"),
            _("The size that was published for the BTCV abdomen; needs a large GPU"),
            41,
        ),
        _choice(
            "unetr_mamba",
            _("UNETR-Mamba, as published"),
            _("UNETR's widths, with state-space layers; needs a large GPU"),
            53,
        ),
        _choice(
            "swin_unetr",
            _("Swin UNETR, as published (MONAI)"),
            _("Needs a GPU and many cases to be better than the others"),
            62,
        ),
    )


def _choice(name: str, title: str, purpose: str, millions: int) -> NetworkChoice:
    """Return a network with its size in million weights."""
    size = _("{purpose} (about {millions} million weights)")
    return NetworkChoice(name, title, size.format(purpose=purpose, millions=millions))
