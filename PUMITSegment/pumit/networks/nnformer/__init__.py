"""nnFormer: convolutions interleaved with local, shifted and global volume attention."""

from pumit.networks.nnformer.network import (
    NnFormer,
    field_stride,
    global_windows,
    stage_grids,
    tables_for,
)

__all__ = ["NnFormer", "field_stride", "global_windows", "stage_grids", "tables_for"]
