"""Linear probe: classify MedMNIST3D images by frozen features of the click model's encoder.

    python Testing/lab/ablations/linear_probe.py --data adrenalmnist3d_64.npz

AUC and accuracy on the test images of logistic regression on pooled features, with the weights of
`default` and with random weights. The weight of the L2 penalty is chosen on the validation images.

Source:
    PUMIT, section "Classification Experiments", which fine-tunes a ViT-B at 160^3 instead.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from pumit.evaluation.classification_metrics import auc
from pumit.models.checkpoint import load_checkpoint
from pumit.models.index import find_model
from pumit.networks.build import build_network
from pumit.networks.promptable.growth import with_class_path
from pumit.networks.promptable.network import PromptableNetwork
from pumit.networks.pumit import Anisotropy
from torch.nn import functional as F

Floats = npt.NDArray[np.float32]
SPLITS = ("train", "val", "test")
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
BATCH = 8


def network(*, pretrained: bool) -> PromptableNetwork:
    """Click network in the sizes of `default`, with its weights or random ones."""
    checkpoint = load_checkpoint(find_model("default"))
    torch.manual_seed(0)
    sizes = {**checkpoint.header.sizes, "num_classes": 0}
    built = build_network("promptable", **sizes).eval()
    assert isinstance(built, PromptableNetwork)
    if pretrained:
        state = {k: v.float() for k, v in checkpoint.state.items()}
        built.load_state_dict(with_class_path(state, built))
    return built


@torch.inference_mode()
def features(of: PromptableNetwork, images: npt.NDArray[np.uint8]) -> Floats:
    """Mean, maximum and deviation of the tokens, and means of finer features, (N, F)."""
    found = []
    for start in range(0, len(images), BATCH):
        x = torch.from_numpy(images[start : start + BATCH].astype(np.float32) / 255)[:, None]
        x = F.avg_pool3d(x, 2)
        embedding = of.embed(torch.cat((x, x, torch.ones_like(x)), 1), Anisotropy(0))
        tokens, quarter = embedding.tokens.flatten(2), embedding.quarter.flatten(2)
        parts = [tokens.mean(2), tokens.amax(2), tokens.std(2), quarter.mean(2), quarter.amax(2)]
        if embedding.classes is not None:
            parts.append(embedding.classes.flatten(2).mean(2))
        found.append(torch.cat(parts, 1).numpy())
    return np.concatenate(found)


def probe(x: Floats, labels: Floats, penalty: float) -> Floats:
    """Weights of logistic regression, the last one the offset, (F + 1,)."""
    given, truth = torch.from_numpy(x), torch.from_numpy(labels)
    weights = torch.zeros(x.shape[1] + 1, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(given @ weights[:-1] + weights[-1], truth)
        loss = loss + penalty * weights[:-1].square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return weights.detach().numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="MedMNIST3D file, two classes")
    parser.add_argument("--seeds", type=int, default=5, help="draws of a part of the labels")
    args = parser.parse_args()
    stored = np.load(args.data)
    truth = {s: stored[f"{s}_labels"][:, 0].astype(np.float32) for s in SPLITS}
    for name in ("default", "random"):
        of = network(pretrained=name == "default")
        x = {s: features(of, stored[f"{s}_images"]) for s in SPLITS}
        for share in (0.2, 1.0):
            rows = []
            for seed in range(args.seeds if share < 1 else 1):
                count = len(truth["train"])
                chosen = np.random.default_rng(seed).permutation(count)[: int(share * count)]
                mean, spread = x["train"][chosen].mean(0), x["train"][chosen].std(0) + 1e-6
                scaled = {s: (x[s] - mean) / spread for s in SPLITS}
                probes = [
                    probe(scaled["train"][chosen], truth["train"][chosen], p) for p in PENALTIES
                ]
                logits = {s: [scaled[s] @ w[:-1] + w[-1] for w in probes] for s in SPLITS}
                best = int(np.argmax([_auc(q, truth["val"]) for q in logits["val"]]))
                q = logits["test"][best]
                rows.append((_auc(q, truth["test"]), float(np.mean((q > 0) == truth["test"]))))
            area, accuracy = np.mean(rows, axis=0)
            print(f"{name}, {share:.0%} of the labels: AUC {area:.3f}, accuracy {accuracy:.3f}")


def _auc(logits: Floats, labels: Floats) -> float:
    p = 1 / (1 + np.exp(-logits))
    return auc(np.stack((1 - p, p), 1), labels.astype(np.int64))


if __name__ == "__main__":
    main()
