"""Patch discriminator of the visual tokenizer."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from pumit.networks.pumit.anisotropy import Anisotropy
from pumit.networks.pumit.sac import SACConv
from pumit.networks.pumit.tokenizer import ConvNormAct


class PatchDiscriminator(nn.Module):
    """Patch discriminator: positive logits for real patches, negative for reconstructed ones.

    Args:
        widths: Channels after each strided convolution, each divisible by `groups`.

    Source:
        PUMIT, section "Optimization Objective", after VQGAN's patch discriminator; built from
        adaptive 3^3 convolutions of stride 2.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        widths: Sequence[int],
        groups: int,
    ) -> None:
        super().__init__()
        inputs = (in_channels, *widths[:-1])
        self.down = nn.ModuleList(
            ConvNormAct(i, o, groups, stride=2) for i, o in zip(inputs, widths, strict=True)
        )
        self.block = ConvNormAct(widths[-1], widths[-1], groups)
        self.last = SACConv(widths[-1], 1)

    def forward(self, x: Tensor, anisotropy: Anisotropy) -> Tensor:
        """Map images (B, in_channels, D, H, W) to logits (B, 1, D', H / 8, W / 8)."""
        state = anisotropy
        for down in self.down:
            x, state = down(x, state), state.down(1)
        return self.last(self.block(x, state), state)
