"""Pre-training of the visual tokenizer: reconstruction, codebook and adversarial losses."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from pumit.networks.build import build_network
from pumit.networks.pumit.anisotropy import Anisotropy
from pumit.networks.pumit.tokenizer import PatchDiscriminator, VisualTokenizer, prior_regularization
from pumit.training.loop.context import TrainingRun
from pumit.training.loop.task import SourceTask
from pumit.training.pretraining import image_recipe
from pumit.training.pretraining.image_source import ImageBatch, ImageSource
from pumit.training.pretraining.objective import Objective, begun_network
from pumit.training.recipes.pretraining import TokenizerLoss as TokenizerLoss
from pumit.training.recipes.pretraining import TokenizerRecipe

GENERATOR = "tokenizer."  # prefix of the model's weights


class TokenizerTraining(nn.Module):
    """The tokenizer and its optional discriminator, which are trained together.

    Attributes:
        last_loss: Loss of the discriminator in the previous step.
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


class TokenizerTask(SourceTask):
    """Training of the tokenizer by reconstruction.

    Tokenizer and discriminator are updated in the same step, on the same images, as published. The
    discriminator receives the detached reconstruction, and the tokenizer's adversarial loss uses
    the discriminator with fixed weights.

    Args:
        perceptual: Loss of (reconstruction, image, anisotropy, generator), or None.
    """

    def __init__(
        self,
        network: TokenizerTraining,
        source: ImageSource,
        *,
        loss: TokenizerLoss | None = None,
        perceptual: nn.Module | None = None,
    ) -> None:
        super().__init__(network, source)
        self.weights = TokenizerLoss() if loss is None else loss
        self.perceptual = perceptual

    def parameter_groups(self, schedule: Any) -> list[dict[str, Any]]:
        """Return parameter groups: no weight decay on vectors and codebook; discriminator rate."""
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
        """Compute the loss of a batch.

        Returns:
            `loss`, and for the log `l1`, `psnr` (dB, for a range of 0..1), `token_kl` (mean KL of
            the token distributions from uniform, nats), `use_kl` (KL of their mean from uniform),
            and `perceptual`, `discriminator` and `gate` if used.
        """
        batch = batch.to(next(self.network.parameters()).device)
        w, anisotropy = self.weights, batch.anisotropy
        # 1. Encode, quantise and decode: (B, C, D, H, W) in and out.
        image = batch.image * 2 - 1
        out = self.network.tokenizer(image, anisotropy)
        back = out.reconstruction.float()
        # 2. Reconstruction loss, and token prior: even usage overall, sharp distributions.
        l1 = F.l1_loss(back, image)
        negative_entropy, mean_entropy = prior_regularization(out.tokens.probabilities)
        sharpness = (mean_entropy - w.entropy_floor).clamp_min(0)
        loss = l1 + w.even * negative_entropy + w.sharp * sharpness
        if w.squared > 0:
            loss = loss + w.squared * F.mse_loss(back, image)
        # 3. Values for the log, errors for a range of 0 to 1.
        most = torch.log(torch.tensor(float(out.tokens.probabilities.shape[1])))
        error = F.mse_loss(back.detach().clamp(-1, 1), image) / 4
        scores = {
            "l1": l1,
            "psnr": -10 * error.clamp_min(1e-12).log10(),
            "token_kl": most - mean_entropy,
            "use_kl": most + negative_entropy,
        }
        # 4. Perceptual and adversarial losses, if the recipe has them.
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
        """Compute the discriminator's hinge loss, and the tokenizer's term if the gate is open."""
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


def build(recipe: TokenizerRecipe, run: TrainingRun) -> Objective:
    """Build networks, data and task of a recipe."""
    from pumit.training.pretraining.perceptual import build_perceptual

    tokenizer = begun_network(recipe, VisualTokenizer)
    if recipe.initial is None:
        spread(tokenizer, recipe.codebook_range, recipe.logit_gain)
    discriminator = None
    if recipe.discriminator:
        built = build_network("pumit_discriminator", **recipe.discriminator_sizes)
        assert isinstance(built, PatchDiscriminator)
        discriminator = built
    task = TokenizerTask(
        TokenizerTraining(tokenizer, discriminator),
        image_recipe.image_source(recipe, run.reporter),
        loss=recipe.loss,
        perceptual=build_perceptual(
            recipe.perceptual, run.device, weights=recipe.perceptual_weights
        ),
    )
    return image_recipe.objective_of(recipe, task, GENERATOR)


def spread(tokenizer: VisualTokenizer, codebook_range: float | None, logit_gain: float) -> None:
    """Initialise codebook and logits so that tokens differ from the first step on.

    Differs from the source: there codebook entries start within 1 / K and distributions nearly
    uniform, so the decoder input is almost constant for tens of thousands of steps. That is too
    slow for a short training.

    Args:
        codebook_range: Entries are drawn uniformly from minus to plus this; None keeps them.
        logit_gain: Factor on the weights of the projection to logits.
    """
    with torch.no_grad():
        if codebook_range is not None:
            tokenizer.quantizer.codebook.uniform_(-codebook_range, codebook_range)
        tokenizer.quantizer.projection.weight.mul_(logit_gain)
