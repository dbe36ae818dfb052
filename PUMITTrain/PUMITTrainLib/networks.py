"""Networks that can be chosen to segment automatically, for the user."""

from __future__ import annotations

from dataclasses import dataclass

from slicer.i18n import tr as _


@dataclass(frozen=True)
class NetworkChoice:
    """A network to choose.

    Attributes:
        name: As a recipe names it.
        title: For the user.
        tooltip: What it is good for.
    """

    name: str
    title: str
    tooltip: str


def networkChoices() -> tuple[NetworkChoice, ...]:
    """Networks that `pumit train` can train, those that a preset takes first."""
    return (
        NetworkChoice(
            "pumit_segmentation_small",
            _("PUMIT, small"),
            _("PUMIT's own network in a size for a computer without a large GPU"),
        ),
        NetworkChoice(
            "basic_unet",
            _("U-Net (MONAI)"),
            _("The plain U-Net of MONAI: dependable, and quick on small data sets"),
        ),
        NetworkChoice(
            "swin_unetr",
            _("Swin UNETR (MONAI)"),
            _("Needs a GPU and many cases to be better than the others"),
        ),
        NetworkChoice(
            "pumit_segmentation_btcv",
            _("PUMIT, as published for CT"),
            _("The size that was published for the BTCV abdomen; needs a large GPU"),
        ),
        NetworkChoice(
            "pumit_segmentation_chaos",
            _("PUMIT, as published for MR"),
            _("The size that was published for the CHAOS abdomen; needs a large GPU"),
        ),
    )
