"""The visual tokenizer: reconstruct, use the codebook evenly, look real; and its recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from pumit.networks.build import RECIPES, build_network
from pumit.networks.pumit.anisotropy import Anisotropy
from pumit.networks.pumit.discriminator import PatchDiscriminator
from pumit.networks.pumit.quantizer import prior_regularization
from pumit.networks.pumit.tokenizer import VisualTokenizer
from pumit.training.loop.prefetch import Draw
from pumit.training.pretraining import image_recipe
from pumit.training.pretraining.image_source import ImageBatch, ImageSource
from pumit.training.pretraining.objective import BuildContext, Objective, ObjectiveKind, begin_with
from pumit.training.recipes.reader import Kinds, check_keys

GENERATOR = "tokenizer."  # the weights under this name are the model


@dataclass(frozen=True)
class TokenizerLoss:
    """Weights of the tokenizer's objective.

    Attributes:
        even: Weight of the negative entropy of the mean token distribution (lambda_1).
        sharp: Weight of the mean entropy of the token distributions (lambda_2).
        entropy_floor: Mean entropy, nats, below which tokens are not sharpened any more.
        squared: Weight of the mean squared error beside the absolute one.
        perceptual: Weight of the perceptual loss.
        adversarial: Weight of the adversarial term where the gate is open.
        gate: The gate is open while the discriminator's running loss is at most this.
        discriminator_rate: Learning rate of the discriminator over the tokenizer's.
        momentum: Of the running loss.

    Source:
        PUMIT, eq. 4 and 5; values of the published command. `entropy_floor` and `squared` are
        ours, and zero there: a short training learns detail sooner from squared errors, and
        tokens as soft as the published ones (4.14 nats) keep more of it than sharp ones.
    """

    even: float = 0.03
    sharp: float = 1.0
    entropy_floor: float = 0.0
    squared: float = 0.0
    perceptual: float = 1.0
    adversarial: float = 0.003
    gate: float = 0.025
    discriminator_rate: float = 10.0
    momentum: float = 0.9


class TokenizerTraining(nn.Module):
    """What is trained together: the tokenizer and, where there is one, its discriminator.

    Args:
        tokenizer: The tokenizer.
        discriminator: Its opponent, or None to train without.

    Attributes:
        running_loss: Running mean of the discriminator's loss.
        last_loss: The discriminator's loss of the last step.
    """

    running_loss: Tensor
    last_loss: Tensor

    def __init__(
        self, tokenizer: VisualTokenizer, discriminator: PatchDiscriminator | None = None
    ) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.discriminator = discriminator
        self.register_buffer("running_loss", torch.tensor(0.1))
        self.register_buffer("last_loss", torch.tensor(0.1))


class TokenizerTask(nn.Module):
    """Draw images and score their reconstructions.

    Generator and discriminator take their step together, on the same images, as published: the
    discriminator sees the reconstruction without its gradient, and the tokenizer sees the
    discriminator with its weights held fixed.

    Args:
        network: What is trained.
        source: Draws images.
        loss: Weights of the terms.
        perceptual: Scores (reconstruction, image, anisotropy, generator), or None.
    """

    def __init__(
        self,
        network: TokenizerTraining,
        source: ImageSource,
        *,
        loss: TokenizerLoss | None = None,
        perceptual: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.source = source
        self.weights = TokenizerLoss() if loss is None else loss
        self.perceptual = perceptual

    def draw(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> ImageBatch:
        """Draw a batch of one degree; see `ImageSource.draw`."""
        return self.source.draw(da0, generator, shared)

    def ahead(self) -> Draw:
        """What draws in worker processes."""
        return self.source.draw

    def parameter_groups(self, schedule: Any) -> list[dict[str, Any]]:
        """AdamW groups: no decay on vectors and the codebook; the discriminator learns faster."""
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, p in self.network.named_parameters():
            is_free = p.ndim <= 1 or name.endswith("codebook")
            rate = 1.0 if name.startswith(GENERATOR) else self.weights.discriminator_rate
            decay = 0.0 if is_free else schedule.weight_decay
            groups.setdefault((decay, rate), []).append(p)
        return [
            {"params": params, "weight_decay": decay, "rate": rate}
            for (decay, rate), params in groups.items()
        ]

    def forward(self, batch: ImageBatch) -> dict[str, Tensor]:
        """Loss of a batch.

        Returns:
            `loss`, and for the log `l1`, `psnr` (dB, on the scale 0..1), `token_kl` (mean KL of
            the token distributions to the uniform one, nats), `use_kl` (KL of their mean),
            `perceptual`, `discriminator` and `gate` where they take part.
        """
        batch = batch.to(next(self.network.parameters()).device)
        w, anisotropy = self.weights, batch.anisotropy
        image = batch.image * 2 - 1
        out = self.network.tokenizer(image, anisotropy)
        back = out.reconstruction.float()
        l1 = F.l1_loss(back, image)
        negative_entropy, mean_entropy = prior_regularization(out.tokens.probabilities)
        sharpness = (mean_entropy - w.entropy_floor).clamp_min(0)
        loss = l1 + w.even * negative_entropy + w.sharp * sharpness
        if w.squared > 0:
            loss = loss + w.squared * F.mse_loss(back, image)
        most = torch.log(torch.tensor(float(out.tokens.probabilities.shape[1])))
        error = F.mse_loss(back.detach().clamp(-1, 1), image) / 4
        scores = {
            "l1": l1,
            "psnr": -10 * error.clamp_min(1e-12).log10(),
            "token_kl": most - mean_entropy,
            "use_kl": most + negative_entropy,
        }
        if self.perceptual is not None and w.perceptual > 0:
            generator = torch.Generator().manual_seed(int(image.sum().abs().item() * 1e3) % 2**31)
            scores["perceptual"] = self.perceptual(back, image, anisotropy, generator)
            loss = loss + w.perceptual * scores["perceptual"]
        if self.network.discriminator is not None:
            scores |= self._adversarial(back, image, anisotropy)
            loss = loss + scores.pop("adversarial") + scores["discriminator"]
        return {"loss": loss, **scores}

    def _adversarial(
        self, back: Tensor, image: Tensor, anisotropy: Anisotropy
    ) -> dict[str, Tensor]:
        """The discriminator's hinge loss, and the tokenizer's term while the gate is open."""
        net, w = self.network, self.weights
        assert net.discriminator is not None
        real = net.discriminator(image, anisotropy).float()
        fake = net.discriminator(back.detach(), anisotropy).float()
        judged = (F.relu(1 - real).mean() + F.relu(1 + fake).mean()) / 2
        is_open = torch.maximum(net.running_loss, net.last_loss) <= w.gate
        adversarial = judged.new_zeros(())
        if bool(is_open):
            fixed = {name: p.detach() for name, p in net.discriminator.named_parameters()}
            answer = functional_call(net.discriminator, fixed, (back, anisotropy))
            adversarial = -w.adversarial * answer.float().mean()
        if torch.is_grad_enabled():
            with torch.no_grad():
                net.running_loss.lerp_(judged.detach().to(net.running_loss), 1 - w.momentum)
                net.last_loss.copy_(judged.detach())
        return {
            "adversarial": adversarial,
            "discriminator": judged,
            "gate": is_open.float(),
        }


KINDS: Kinds = {
    **image_recipe.KINDS,
    "loss": (dict,),
    "codebook_range": (int, float),
    "logit_gain": (int, float),
    "discriminator": (bool,),
    "discriminator_sizes": (dict,),
    "perceptual": (str,),
    "perceptual_weights": (str,),
}
LOSS_KINDS: Kinds = {f.name: (int, float) for f in fields(TokenizerLoss)}


def check(recipe: Mapping[str, Any], name: str) -> None:
    """Raise PumitError for keys that cannot be used, reading no data."""
    image_recipe.check(recipe, name)
    check_keys(recipe.get("loss", {}), LOSS_KINDS, "loss")


def build(recipe: Mapping[str, Any], context: BuildContext) -> Objective:
    """Build networks, data and task of a recipe.

    Raises:
        PumitError: If its data or the perceptual network are missing.
    """
    from pumit.training.pretraining.perceptual import build_perceptual

    name = str(recipe["network"])
    sizes = {**RECIPES[name].sizes, **recipe.get("network_sizes", {})}
    tokenizer = build_network(name, **sizes)
    assert isinstance(tokenizer, VisualTokenizer)
    if "initial" in recipe:
        begin_with(tokenizer, recipe["initial"], (name,))
    else:
        spread(tokenizer, recipe.get("codebook_range"), float(recipe.get("logit_gain", 1.0)))
    discriminator = None
    if recipe.get("discriminator", True):
        built = build_network("pumit_discriminator", **recipe.get("discriminator_sizes", {}))
        assert isinstance(built, PatchDiscriminator)
        discriminator = built
    task = TokenizerTask(
        TokenizerTraining(tokenizer, discriminator),
        image_recipe.image_source(recipe),
        loss=TokenizerLoss(**recipe.get("loss", {})),
        perceptual=build_perceptual(
            recipe.get("perceptual", "none"),
            context.device,
            weights=recipe.get("perceptual_weights"),
        ),
    )
    content = {
        "network": name,
        "sizes": sizes,
        "plan": image_recipe.window_plan(recipe),
    }
    return Objective(task, image_recipe.degrees(recipe), content, GENERATOR)


def spread(tokenizer: VisualTokenizer, codebook_range: float | None, logit_gain: float) -> None:
    """Let the tokens differ from the first step on.

    Differs from the source: its codebook entries begin within 1 / K and its distributions nearly
    uniform, so that the decoder sees next to nothing for the first tens of thousands of steps. A
    short training has no time for that.

    Args:
        tokenizer: The tokenizer, not trained yet.
        codebook_range: Entries begin uniform between minus and plus this; None leaves them.
        logit_gain: Factor on the projection to logits.
    """
    with torch.no_grad():
        if codebook_range is not None:
            tokenizer.quantizer.codebook.uniform_(-codebook_range, codebook_range)
        tokenizer.quantizer.projection.weight.mul_(logit_gain)


TOKENIZER_OBJECTIVE = ObjectiveKind(KINDS, check, build)
