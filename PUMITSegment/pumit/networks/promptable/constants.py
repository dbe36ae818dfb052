"""Constants of prompts and of their maps, shared with engines that run without torch."""

from __future__ import annotations

# Kinds of prompts, in the order of their learned vectors.
NO_LABEL, NEGATIVE, POSITIVE, BOX_LOWER, BOX_UPPER = -1, 0, 1, 2, 3
# Nearness to a click falls to 0.6 at this many in-plane voxels, and, farther, to 0.4 at such a
# share of a training field.
NEAR_VOXELS, FAR_SHARE = 2.0, 0.2
# How unlike a clicked intensity may be, of the range of a field.
LIKENESS_WIDTH = 0.1
LIKENESS_BINS = 24
# A signed distance to a box saturates beyond a tenth of a training field.
BOX_SHARPNESS = 10.0

# Geodesic distances. A step costs this much of one in-plane voxel of the feature grid; far less
# than what a border costs.
STEP_COST = 0.02
ROUNDS = 4
RANGES = (0.25, 1.0)
GEODESIC_CHANNELS = 2 * (len(RANGES) + 1) + 1
UNREACHED = 1e3
CLASS_MAPS = 3  # cosines of class vectors: inside points, outside points, box
