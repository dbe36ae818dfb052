"""nnFormer: convolution and local, shifted and global volume attention, interleaved."""

from pumit.networks.nnformer.network import (
    NnFormer,
    field_stride,
    global_windows,
    stage_grids,
    tables_for,
)

__all__ = ["NnFormer", "field_stride", "global_windows", "stage_grids", "tables_for"]
