"""Initialise the encoder of a supervised network from a pre-trained ViT."""

from pumit.errors import CheckpointError
from pumit.models.card import kind_of
from pumit.models.checkpoint import load_checkpoint
from pumit.models.index import find_model
from pumit.networks.build import RECIPES
from pumit.networks.pumit.transfer import load_universal_weights
from pumit.networks.pumit.vit import UniversalViT
from pumit.training.preceding import VIT_SIZES

PREFIX = "vit."


def load_initial_encoder(vit: UniversalViT, model: str) -> None:
    """Load pre-trained weights into a ViT; patch size, channels and field size may differ.

    Args:
        model: Name or file of a masked image model or a universal ViT.

    Raises:
        CheckpointError: If the model is not found, is another network or has another size.
    """
    path = find_model(model)
    checkpoint = load_checkpoint(path)
    network = checkpoint.header.network
    if network != "pumit_vit_b" and kind_of(checkpoint.recipe) != "encoder":
        remedy = "give a universal ViT, as `pumit pretrain vit` makes one"
        if network == "promptable":
            remedy += ", or segment with the network pumit_encoder_small, which can begin with it"
        raise CheckpointError(f"initial {path.name} holds the network {network!r}; {remedy}.")
    state = checkpoint.single
    if any(name.startswith(PREFIX) for name in state):
        state = {k.removeprefix(PREFIX): v for k, v in state.items() if k.startswith(PREFIX)}
    try:
        load_universal_weights(vit, state)
    except CheckpointError as error:
        sizes = {**RECIPES[network].sizes, **checkpoint.header.sizes} if network in RECIPES else {}
        own = ", ".join(f"{key}: {sizes[key]}" for key in VIT_SIZES if key in sizes)
        if "patch_halvings" in sizes:
            own += f", fixed_patch of {2 ** sizes['patch_halvings']} voxels in-plane"
        raise CheckpointError(
            f"initial {path.name} does not fit ({str(error).rstrip('.')}). Its sizes are {own}; "
            "give these in network_sizes, or leave network_sizes out."
        ) from None
