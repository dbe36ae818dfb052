"""VGG16 features for the perceptual loss."""

from torch import Tensor, nn
from torch.nn import functional as F

# Channels of each stage's convolutions; every stage but the first begins with a max pool.
STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class Vgg16Features(nn.Module):
    """VGG16 up to its last convolution; returns the output of every stage.

    Parameters have torchvision's names within `features` (`0.weight`, `2.weight`, `5.weight`,
    ...), so that torchvision's weights load unchanged.

    Source:
        Simonyan and Zisserman, ICLR 2015, configuration D; the layers relu1_2, relu2_2, relu3_3,
        relu4_3 and relu5_3 as in Zhang et al., LPIPS, CVPR 2018.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stage_names: list[list[str]] = []
        number, channels = 0, 3
        for widths in STAGES:
            names = []
            for width in widths:
                self.add_module(str(number), nn.Conv2d(channels, width, 3, padding=1))
                names.append(str(number))
                number, channels = number + 2, width  # torchvision also counts the ReLU
            self.stage_names.append(names)
            number += 1  # and the pooling

    def forward(self, x: Tensor) -> list[Tensor]:
        """Map ImageNet-normalised images (B, 3, H, W), sides at least 16, to five feature maps."""
        maps = []
        for stage, names in enumerate(self.stage_names):
            if stage > 0:
                x = F.max_pool2d(x, 2)
            for name in names:
                x = F.relu(self.get_submodule(name)(x))
            maps.append(x)
        return maps
