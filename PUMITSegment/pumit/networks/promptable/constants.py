"""Constants of prompts and prompt maps, shared with engines that run without torch."""

# Kinds of prompts, in the order of their learned vectors.
NO_LABEL, NEGATIVE, POSITIVE, BOX_LOWER, BOX_UPPER = -1, 0, 1, 2, 3
# Short-range nearness to a click falls to 0.6 at this many in-plane voxels; long-range nearness
# falls to 0.4 at this share of a training field.
NEAR_VOXELS, FAR_SHARE = 2.0, 0.2
# Width of the Gaussian of intensity likeness, relative to the field's range.
LIKENESS_WIDTH = 0.1
LIKENESS_BINS = 24
# A signed distance to a box saturates beyond a tenth of a training field.
BOX_SHARPNESS = 10.0

# Geodesic distances. Cost per in-plane voxel of the feature grid, far less than that of a border.
STEP_COST = 0.02
ROUNDS = 4
RANGES = (0.25, 1.0)
GEODESIC_CHANNELS = 2 * (len(RANGES) + 1) + 1
UNREACHED = 1e3
CLASS_MAPS = 3  # cosines of class vectors: inside points, outside points, box
