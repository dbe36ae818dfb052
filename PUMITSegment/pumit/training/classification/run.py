"""`pumit train` of a classifier: train, keep the best by validation AUC, test it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pumit.errors import PumitError
from pumit.models.checkpoint import load_checkpoint, read_recipe, save_checkpoint
from pumit.networks.build import RECIPES, build_network
from pumit.networks.pumit.classifier import VitClassifier
from pumit.preprocessing.classifier_input import ClassifierInput
from pumit.training.classification.answers import measures, write_answers
from pumit.training.classification.cases import SPLITS, Cases, ClassificationData
from pumit.training.classification.prepared_images import PreparedImages, keep_prepared
from pumit.training.classification.recipe import (
    DEFAULT_NETWORK,
    batch_size,
    check_recipe,
    form_of,
    plan_of,
    read_data,
)
from pumit.training.classification.task import CaseDraw, ClassificationTask, probabilities_of
from pumit.training.loop.context import TrainingRun
from pumit.training.loop.distributed import Meeting, world
from pumit.training.loop.initial_encoder import begin_with_encoder
from pumit.training.loop.trainer import train
from pumit.training.recipes.schedule import Schedule
from pumit.training.run.origin import origin_of
from pumit.training.run.out_of_memory import (
    MemoryShortError,
    WorkerLostError,
    as_memory_allows,
    fewer_workers,
)

TIE = 1e-6  # less than one pair of cases in the wrong order, in any data set of MedMNIST3D
# What the checkpoint repeats of the recipe.
_TOLD = ("seed", "batch_size", "epochs", "drop_epochs", "random_intensity", "flips")


def train_classifier(run: TrainingRun) -> Path:
    """Train a classifier by a recipe, going on where `run.output` holds an earlier part.

    Where the recipe names several `learning_rates`, each is trained in a folder of its own, and
    the one with the highest validation AUC is kept. The test cases, where there are any, are
    looked at once, at the end; `answers.csv` then holds what is said of each case.

    Returns:
        The checkpoint, half precision, with its measured AUC and accuracy.

    Raises:
        PumitError: If the recipe is wrong, or the data cannot be learned from.
    """
    check_recipe(run.recipe, run.source)
    data = read_data(run)
    sizes = _sizes(run.recipe, data)
    form = form_of(run.recipe, sizes, data.is_stored_as_shown)
    sizes["position_table"] = [n // p for n, p in zip(form.size, sizes["fixed_patch"], strict=True)]
    start = _start(run, sizes)
    run.report({"classes": list(data.classes), "cases": data.counts()})
    images = run.reporter.written(lambda: _prepare(run, data, form))
    origin = _origin(run)
    return as_memory_allows(
        lambda now: _train(_Trial(now, data, form, sizes, images, start, origin)),
        run,
        _smaller,
        run.reporter,
    )


def _smaller(run: TrainingRun, short: MemoryShortError) -> tuple[TrainingRun, str] | None:
    """The same run with less memory, and what is less."""
    if isinstance(short, WorkerLostError):
        fewer = fewer_workers(run.workers)
        return fewer and (replace(run, workers=fewer[0]), fewer[1])
    count = batch_size(run.recipe)
    if count == 1:
        return None
    recipe = {**run.recipe, "batch_size": count // 2}
    return replace(run, recipe=recipe), f"Each step takes {count // 2} of {count} images now."


def _train(trial: _Trial) -> Path:
    """Train at every rate, and test the best; returns its checkpoint."""
    run, data = trial.run, trial.data
    run.settle(
        task="classification",
        name=run.name,
        network=str(run.recipe.get("network", DEFAULT_NETWORK)),
        batch_size=batch_size(run.recipe),
        seed=run.seed,
        workers=run.workers,
    )
    schedules = plan_of(run.recipe, run.schedule, len(data.splits["train"]), processes=world())
    best: list[tuple[float, float, Path]] = []
    for schedule in schedules:
        folder = run.output
        if len(schedules) > 1:
            folder = folder / f"rate_{schedule.learning_rate:g}"
            folder.mkdir(exist_ok=True)
        best.append(trial.train(folder, schedule))
    target = run.output / f"{run.name}.safetensors"
    if run.is_first:
        trial.finish(max(best)[-1], target)
    return target


def _sizes(recipe: Mapping[str, Any], data: ClassificationData) -> dict[str, Any]:
    """Sizes of the network for this data set; the published ones where the recipe says nothing."""
    name = str(recipe.get("network", DEFAULT_NETWORK))
    given = {**recipe.get("network_sizes", {}), "num_classes": len(data.classes)}
    if name not in RECIPES or RECIPES[name].class_name != VitClassifier.__name__:
        known = [k for k, r in RECIPES.items() if r.class_name == VitClassifier.__name__]
        raise PumitError(f"{name!r} is no classifier; known: {', '.join(known)}.")
    with torch.device("meta"):
        build_network(name, **given)  # says what does not fit
    return {**RECIPES[name].sizes, **given}


def _prepare(
    run: TrainingRun, data: ClassificationData, form: ClassifierInput
) -> dict[str, PreparedImages]:
    """Images of each split; those from files are read once, by the first process."""
    prepared = {}
    for name, cases in data.splits.items():
        if cases.files:
            target = run.output / "prepared" / f"{name}.npy"
            Meeting().first_alone(partial(_keep, cases, form, target))
            prepared[name] = keep_prepared(cases, form, target)
        else:
            prepared[name] = PreparedImages(cases, form)
            prepared[name][0]  # says if the network cannot take it
    return prepared


def _keep(cases: Cases, form: ClassifierInput, target: Path) -> None:
    keep_prepared(cases, form, target)


def _start(run: TrainingRun, sizes: Mapping[str, Any]) -> VitClassifier:
    """The network as training begins, whatever the rate."""
    recipe = run.recipe
    torch.manual_seed(run.seed)
    network = build_network(str(recipe.get("network", DEFAULT_NETWORK)), **sizes)
    assert isinstance(network, VitClassifier)
    if "initial" in recipe:
        path = run.path(recipe["initial"])  # else a name of the index
        begin_with_encoder(network.vit, str(path) if path.is_file() else recipe["initial"])
    elif "eva02" in recipe:
        from pumit.models.eva02_file import load_eva02

        load_eva02(network.vit, run.path(recipe["eva02"]))
    return network


def _origin(run: TrainingRun) -> dict[str, str]:
    """What the training begins with, for the checkpoint; empty for random weights."""
    for key in ("initial", "eva02"):
        if key in run.recipe:
            path = run.path(run.recipe[key])
            return origin_of(path if path.is_file() else run.recipe[key])
    return {}


@dataclass(frozen=True)
class _Trial:
    """Everything that stays the same while learning rates are tried."""

    run: TrainingRun
    data: ClassificationData
    form: ClassifierInput
    sizes: Mapping[str, Any]
    images: Mapping[str, PreparedImages]
    start: VitClassifier
    origin: Mapping[str, str]

    def train(self, folder: Path, schedule: Schedule) -> tuple[float, float, Path]:
        """Train at one rate; returns the best checkpoint after its AUC and negative surprise."""
        recipe, run = self.run.recipe, self.run
        network = copy.deepcopy(self.start)
        task = ClassificationTask(
            network,
            channels=self.form.channels,
            draw=CaseDraw(
                self.images["train"],
                self.data.splits["train"].labels,
                batch_size(recipe),
                random_intensity=bool(recipe.get("random_intensity", False)),
                flips=bool(recipe.get("flips", False)),
            ),
        )
        answering = self._answering()
        target = folder / f"{run.name}.safetensors"

        def validate(state: dict[str, Tensor]) -> dict[str, float]:
            answering.load_state_dict(state)
            found = measures(self._answer(answering, "val"), self.data.splits["val"].labels)
            # Of equal AUCs, which few cases give easily, the surer one.
            return {"score": found["auc"] - TIE * found["cross_entropy"], **found}

        def keep(state: dict[str, Tensor], step: int, found: dict[str, float]) -> None:
            measured = {"val": {k: v for k, v in found.items() if k != "score"}}
            self._save(target, state, schedule, step, measured)

        train(
            task,
            folder,
            schedule,
            seed=run.seed,
            degrees={0: 1.0},
            report=lambda record: run.report({"learning_rate": schedule.learning_rate, **record}),
            device=run.device,
            workers=run.workers,
            validate=validate,
            # Of several rates none is the best before all are tried.
            on_best=run.keeping(keep, target) if folder == run.output else keep,
            reporter=run.reporter,
        )
        if not run.is_first:
            return 0.0, 0.0, target
        found = read_recipe(target)[0]["metrics"]["val"]
        return found["auc"], -found["cross_entropy"], target

    def finish(self, best: Path, target: Path) -> None:
        """Test the best weights as they were saved, and write them with what was measured."""
        checkpoint = load_checkpoint(best)
        network = self._answering()
        network.load_state_dict(checkpoint.state)
        answers = {s: self._answer(network, s) for s in SPLITS[1:] if s in self.data.splits}
        measured = {s: measures(found, self.data.splits[s].labels) for s, found in answers.items()}
        write_answers(self.run.output / "answers.csv", self.data, answers)
        recipe = {**checkpoint.recipe, "metrics": measured}
        save_checkpoint(target, checkpoint.state, recipe)
        self.run.report(
            {
                "model": target.name,
                "best_step": recipe["step"],
                "learning_rate": recipe["training"]["learning_rate"],
                **measured,
            }
        )

    def _answering(self) -> VitClassifier:
        """A network to put weights into that are only used."""
        return copy.deepcopy(self.start).eval().requires_grad_(False).to(self.run.device)

    def _answer(self, network: nn.Module, split: str) -> npt.NDArray[np.float32]:
        return probabilities_of(
            network,
            self.images[split],
            batch_size=batch_size(self.run.recipe),
            is_multi_label=self.data.is_multi_label,
        )

    def _save(
        self,
        target: Path,
        state: Mapping[str, Tensor],
        schedule: Schedule,
        step: int,
        measured: dict[str, dict[str, float]],
    ) -> None:
        recipe = self.run.recipe
        training = {key: recipe[key] for key in _TOLD if key in recipe}
        training |= {"initial": dict(self.origin)} if self.origin else {}
        training |= {"learning_rate": schedule.learning_rate, "cases": self.data.counts()}
        content = {
            "name": self.run.name,
            "version": str(recipe.get("version", "0")),
            "kind": "classifier",
            "network": str(recipe.get("network", DEFAULT_NETWORK)),
            "sizes": dict(self.sizes),
            "input": self.form.as_recipe(),
            "classes": [{"name": name} for name in self.data.classes],
            "is_multi_label": self.data.is_multi_label,
            "step": step,
            "training": {**training, "schedule": recipe.get("schedule", {})},
            "metrics": measured,
            **recipe.get("card", {}),
        }
        half = {k: (v.half() if v.is_floating_point() else v).cpu() for k, v in state.items()}
        save_checkpoint(target, half, content)
