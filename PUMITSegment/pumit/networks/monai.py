"""The MONAI names used here, imported without `transformers`.

MONAI imports `transformers`, if installed, for a network that is not used here. That takes longer
than importing PyTorch and MONAI together.
"""

import sys

_is_hidden = "transformers" not in sys.modules
if _is_hidden:
    sys.modules["transformers"] = None  # type: ignore[assignment]
try:
    from monai.metrics.utils import get_edge_surface_distance
    from monai.networks.blocks.dynunet_block import UnetResBlock
    from monai.networks.blocks.unetr_block import UnetrBasicBlock, UnetrUpBlock
    from monai.networks.layers.drop_path import DropPath
    from monai.networks.nets.basic_unet import BasicUNet
    from monai.networks.nets.swin_unetr import (
        PatchMerging,
        PatchMergingV2,
        SwinTransformer,
        SwinUNETR,
    )
    from monai.transforms import (
        Compose,
        RandAdjustContrast,
        RandAffine,
        RandGaussianNoise,
        RandGaussianSmooth,
        RandScaleIntensity,
        RandScaleIntensityFixedMean,
        RandSimulateLowResolution,
    )
    from monai.utils import convert_to_tensor
finally:
    if _is_hidden:
        del sys.modules["transformers"]
