"""nnFormer: convolutions interleaved with local, shifted and global volume attention."""
