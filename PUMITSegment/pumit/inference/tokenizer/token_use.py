"""Codebook usage and reconstruction results of a tokenizer; needs no torch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.inference.tokenizer.familiarity import Familiarity

# This far below the range of the reference images, the reconstruction is called clearly worse.
_CLEARLY_WORSE_DB = 3.0


@dataclass(frozen=True, eq=False)
class TokenUse:
    """Codebook usage of an image.

    Attributes:
        shares: Mean probability of each token over all cells of the image, (K,), summing to 1.
        mean_entropy: Mean entropy of the cells' distributions, nats; low if the tokenizer is
            certain.
    """

    shares: npt.NDArray[np.float64]
    mean_entropy: float

    @property
    def entropy(self) -> float:
        """Entropy of the shares, nats; ln K if all tokens are used equally."""
        p = self.shares[self.shares > 0]
        return float(-(p * np.log(p)).sum())

    @property
    def perplexity(self) -> float:
        """exp(entropy): the effective number of tokens used, 1 to K."""
        return math.exp(self.entropy)

    @property
    def kl_to_uniform(self) -> float:
        """KL divergence of the shares from the uniform distribution, nats: 0 to ln K."""
        return max(math.log(len(self.shares)) - self.entropy, 0.0)

    @property
    def mean_cell_kl(self) -> float:
        """Mean KL divergence of the cells' distributions from the uniform one, nats.

        PUMIT reports 2.791 over its pre-training data.
        """
        return max(math.log(len(self.shares)) - self.mean_entropy, 0.0)


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Reconstruction of an image by a tokenizer, with quality metrics.

    Attributes:
        image: Reconstruction in the volume's intensities, float32 (D, H, W).
        difference: `image` minus the clipped input of the tokenizer, float32 (D, H, W).
        psnr_db: Peak signal-to-noise ratio on the tokenizer's scale 0..1, dB.
        ssim: Mean structural similarity of the slices; None if they are too small.
        familiarity: Score with its reasons; None if the tokenizer has no scale or the image is too
            small.
        usual_shares: Codebook usage of known images, (K,); None if the tokenizer has no scale.
        measured: Metrics behind the score, by the names of `familiarity.SAYINGS`.
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
        """Return everything but the images as JSON values."""
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
    """Describe the reconstruction quality in one sentence.

    Args:
        reference: Of the tokenizer's recipe; `psnr_db` has the 5th and 50th percentile over known
            images.
    """
    try:
        low, usual = (float(v) for v in reference["psnr_db"])  # type: ignore[index]
    except (KeyError, TypeError, ValueError):
        return (
            f"The reconstruction has a PSNR of {psnr_db:.1f} dB; this tokenizer has no reference "
            "figures to compare it with."
        )
    measured = f"PSNR {psnr_db:.1f} dB; {usual:.1f} dB is typical of images like its training data"
    advice = ""
    if psnr_db >= usual:
        how = "as well as images"
    elif psnr_db >= low:
        how = "about as well as images"
    elif psnr_db >= low - _CLEARLY_WORSE_DB:
        how = "less well than most images"
        advice = "; check the error image before relying on it"
    else:
        how = "clearly worse than images"
    return f"The model reconstructs this image {how} like its training data ({measured}){advice}."
