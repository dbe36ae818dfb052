"""Fields and prompts for tiny promptable networks."""

from collections.abc import Callable

import pytest
import torch
from pumit.networks.promptable.constants import NEGATIVE, NO_LABEL, POSITIVE
from pumit.networks.promptable.prompt_encoder import PromptBatch
from pumit.preprocessing.fields import field_shape
from torch import Tensor

Batch = tuple[Tensor, PromptBatch]


@pytest.fixture
def field_batch() -> Callable[..., Batch]:
    """An image and prompts of every kind for a degree of anisotropy."""

    def build(
        da0: int, size: int = 16, count: int = 2, dtype: torch.dtype = torch.float32
    ) -> Batch:
        g = torch.Generator().manual_seed(da0)
        shape = field_shape(da0, size)
        image = torch.rand(count, 3, *shape, generator=g, dtype=dtype)
        image[:, 2] = 1
        ratio = torch.full((count,), 0.0 if da0 == 5 else 1.3 * 2.0**da0, dtype=dtype)
        scale = torch.stack((ratio, torch.ones_like(ratio), torch.ones_like(ratio)), dim=1)
        places = torch.rand(count, 3, 3, generator=g, dtype=dtype) * torch.tensor(
            shape, dtype=dtype
        )
        points = (places - 0.5) * scale[:, None]
        labels = torch.tensor([[POSITIVE, NEGATIVE, POSITIVE]] * count)
        labels[-1, 2] = NO_LABEL
        low = torch.zeros(count, 3, dtype=dtype) + 2
        high = (torch.tensor(shape, dtype=dtype) - 2) * scale
        prior = torch.rand(count, 1, *shape, generator=g, dtype=dtype)
        yes = torch.ones(count, dtype=torch.bool)
        return image, PromptBatch(
            points, labels, torch.stack((low, high), dim=1), yes, prior, yes.clone(), ratio
        )

    return build
