"""nnFormer: convolution and local, shifted and global volume attention, interleaved."""

from pumit.networks.nnformer.network import NnFormer, field_stride

__all__ = ["NnFormer", "field_stride"]
