"""PUMIT: spatially adaptive convolution, rotary position embedding, tokenizer, universal ViT."""

from pumit.networks.pumit.anisotropy import Anisotropy
from pumit.networks.pumit.eva import AdditiveRotaryEmbedding3D
from pumit.networks.pumit.sac import SACConv, SACDownsample, SACUpsample
from pumit.networks.pumit.tokenizer import SoftVectorQuantizer, prior_regularization

__all__ = [
    "AdditiveRotaryEmbedding3D",
    "Anisotropy",
    "SACConv",
    "SACDownsample",
    "SACUpsample",
    "SoftVectorQuantizer",
    "prior_regularization",
]
