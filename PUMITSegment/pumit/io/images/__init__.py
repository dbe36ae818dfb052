"""Image files: NIfTI, what ITK reads, pictures; and the grid of voxels."""
