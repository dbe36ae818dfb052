"""How an image uses a tokenizer, in figures and in one sentence; needs no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.inference.tokenizer.familiarity import Familiarity

# So much below the range of the reference images, an image is called unlike them.
_CLEARLY_WORSE_DB = 3.0


@dataclass(frozen=True, eq=False)
class TokenUse:
    """How an image uses the codebook.

    Attributes:
        shares: Mean probability of each token over all cells of the image, (K,), summing to 1.
        mean_entropy: Mean entropy of the cells' own distributions, nats: low where the tokenizer
            is sure of each cell.
    """

    shares: npt.NDArray[np.float64]
    mean_entropy: float

    @property
    def entropy(self) -> float:
        """Entropy of the shares, nats; ln K where all tokens are used equally."""
        p = self.shares[self.shares > 0]
        return float(-(p * np.log(p)).sum())

    @property
    def perplexity(self) -> float:
        """Number of tokens that, used equally, would have this entropy: 1 to K."""
        return math.exp(self.entropy)

    @property
    def kl_to_uniform(self) -> float:
        """Divergence of the shares from all tokens being used equally, nats: 0 to ln K."""
        return max(math.log(len(self.shares)) - self.entropy, 0.0)

    @property
    def mean_cell_kl(self) -> float:
        """Mean divergence of the cells' own distributions from the uniform one, nats.

        The figure that PUMIT reports as 2.791 over its pre-training data.
        """
        return max(math.log(len(self.shares)) - self.mean_entropy, 0.0)


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """An image through a tokenizer and back.

    Attributes:
        image: Reconstruction in the volume's intensities, float32 (D, H, W).
        difference: `image` less the volume as the tokenizer saw it (clipped), float32 (D, H, W).
        psnr_db: Peak signal-to-noise ratio on the scale 0..1 that the tokenizer sees, dB.
        ssim: Mean structural similarity of the slices; None where they are too small for it.
        sentence: Sentence on how well the model knows this kind of image.
        familiarity: The same as a score with its reasons; None where the tokenizer brings no scale
            or the image is too small.
        usual_shares: Use of the codebook by images that it knows, (K,), where it says so.
        measured: Figures that the score is made of, by the names of `familiarity.SAYINGS`.
    """

    image: npt.NDArray[np.float32]
    difference: npt.NDArray[np.float32]
    use: TokenUse
    psnr_db: float
    ssim: float | None
    sentence: str
    familiarity: Familiarity | None = None
    usual_shares: npt.NDArray[np.float64] | None = None
    measured: Mapping[str, float] = field(default_factory=dict)

    def figures(self) -> dict[str, Any]:
        """All but the images, as JSON values."""
        return {
            "psnr_db": round(self.psnr_db, 3),
            "ssim": None if self.ssim is None else round(self.ssim, 4),
            "tokens": len(self.use.shares),
            "perplexity": round(self.use.perplexity, 3),
            "kl_to_uniform_nats": round(self.use.kl_to_uniform, 4),
            "mean_cell_kl_nats": round(self.use.mean_cell_kl, 4),
            "mean_cell_entropy_nats": round(self.use.mean_entropy, 4),
            "sentence": self.sentence,
            "familiarity": None if self.familiarity is None else self.familiarity.as_json(),
        }


def quality(psnr_db: float, reference: object) -> str:
    """One plain sentence on how well a tokenizer brings an image back.

    Args:
        reference: `reference` of the tokenizer's recipe: `psnr_db`, the 5th and 50th percentile of
            images that it knows.
    """
    try:
        low, usual = (float(v) for v in reference["psnr_db"])  # type: ignore[index]
    except (KeyError, TypeError, ValueError):
        return (
            f"The reconstruction has a PSNR of {psnr_db:.1f} dB; this tokenizer has no reference "
            "figures to compare it with."
        )
    measured = f"PSNR {psnr_db:.1f} dB; {usual:.1f} dB is typical of images like its training data"
    if psnr_db >= usual:
        return (
            "The model reconstructs this image as well as images like its training data "
            f"({measured})."
        )
    if psnr_db >= low:
        return (
            "The model reconstructs this image about as well as images like its training data "
            f"({measured})."
        )
    if psnr_db >= low - _CLEARLY_WORSE_DB:
        return (
            "The model reconstructs this image less well than most images like its training data "
            f"({measured}); check the error image before relying on it."
        )
    return (
        "The model reconstructs this image clearly worse than images like its training data "
        f"({measured})."
    )
