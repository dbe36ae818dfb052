"""PUMIT: spatially adaptive convolution, rotary position embedding, tokenizer, universal ViT."""

from pumit.networks.pumit.anisotropy import Anisotropy
from pumit.networks.pumit.quantizer import SoftVectorQuantizer, prior_regularization
from pumit.networks.pumit.rope import AdditiveRotaryEmbedding3D
from pumit.networks.pumit.sac import SACConv, SACDownsample, SACUpsample

__all__ = [
    "AdditiveRotaryEmbedding3D",
    "Anisotropy",
    "SACConv",
    "SACDownsample",
    "SACUpsample",
    "SoftVectorQuantizer",
    "prior_regularization",
]
