"""`pumit train` with `task: classification`: train, keep the best by validation AUC, test it."""

import copy
import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from pumit.errors import PumitError
from pumit.evaluation.classification_metrics import Labels, accuracy, auc, cross_entropy
from pumit.models.checkpoint import load_checkpoint, read_recipe, save_checkpoint
from pumit.networks.build import RECIPES, build_network
from pumit.networks.pumit.vit import VitClassifier
from pumit.preprocessing.classifier_input import ClassifierInput
from pumit.preprocessing.normalization import Normalization
from pumit.system.files import atomic_path, file_sha256
from pumit.system.wording import listed
from pumit.training.classification.cases import SPLITS, ClassificationData
from pumit.training.classification.reader import read_classification_data
from pumit.training.classification.task import (
    CaseDraw,
    ClassificationTask,
    PreparedImages,
    keep_prepared,
    probabilities_of,
)
from pumit.training.loop.distributed import RankSync, world
from pumit.training.loop.fit import TrainingJob, Trial
from pumit.training.loop.initial_encoder import load_initial_encoder
from pumit.training.loop.state import State, Validate
from pumit.training.loop.task import Task
from pumit.training.recipes.classification import ClassificationRecipe
from pumit.training.recipes.schedule import Schedule
from pumit.training.recipes.segmentation import SIDED
from pumit.training.run.origin import origin_of

# MedMNIST's images are unsigned bytes.
BYTES = Normalization("range", (0.0, 255.0), (0.0, 1.0))
SHOWN = 5  # images in several splits that are named
TIE = 1e-6  # less than one pair of cases in the wrong order, in any data set of MedMNIST3D
# Recipe keys that are copied into the checkpoint.
REPEATED = ("seed", "batch_size", "epochs", "drop_epochs", "random_intensity", "flips")


def read_data(recipe: ClassificationRecipe, resolve: Callable[[str], Path]) -> ClassificationData:
    """Read the data set of a recipe, whose paths are resolved by `resolve`.

    Raises:
        PumitError: If it cannot be trained on.
    """
    data = recipe.data
    path = resolve(str(data.folder if data.file is None else data.file))
    names = tuple(str(name) for name in data.classes)
    if len(set(names)) < len(names):
        raise PumitError(f"data.classes holds a name twice: {', '.join(names)}.")
    found = read_classification_data(
        path,
        classes=names,
        split=data.split,
        patient=data.patient,
        seed=recipe.seed,
    )
    sided = [name for name in found.classes if SIDED.search(name)]
    if not (recipe.flips and sided):
        return found
    note = f"{sided[0]} names a side, and flips: true shows it mirrored too; set flips: false"
    return replace(found, notes=(*found.notes, note))


def form_of(
    recipe: ClassificationRecipe, sizes: Mapping[str, Any], data: ClassificationData
) -> ClassifierInput:
    """Return the input format of the network, for sizes with all defaults filled in.

    Raises:
        PumitError: If the patch is not fixed, the size is not a multiple of it, or the intensity
            rule is invalid.
    """
    patch = sizes["fixed_patch"]
    if patch is None:
        raise PumitError("A classifier's patch is fixed; give fixed_patch in network_sizes.")
    table = sizes["position_table"]
    d, h, w = recipe.image_size or [p * n for p, n in zip(patch, table, strict=True)]
    if any(n % p for n, p in zip((d, h, w), patch, strict=True)):
        raise PumitError(
            f"image_size {d} x {h} x {w} is no multiple of the network's patch "
            f"{' x '.join(map(str, patch))}; change one of them."
        )
    orientation = recipe.orientation or ("stored" if data.is_stored_as_shown else "anatomical")
    normalization = BYTES if data.has_bytes else Normalization()
    if recipe.intensity is not None:
        normalization = Normalization.from_recipe(recipe.intensity.model_dump())
    factor = 0.5 if recipe.random_intensity else 1.0
    return ClassifierInput(
        (d, h, w),
        int(sizes["in_channels"]),
        normalization,
        orientation,
        factor,
    )


def plan_of(recipe: ClassificationRecipe, cases: int, *, processes: int) -> list[Schedule]:
    """Return one schedule per learning rate, with epochs converted to steps.

    With `epochs`, every epoch ends with a validation unless the schedule has `validate_every`;
    `drop_epochs` are the epochs after which the learning rate drops.
    """
    schedule = recipe.schedule
    per_epoch = -(-cases // (recipe.batch_size * schedule.accumulate * processes))
    changes: dict[str, Any] = {}
    if recipe.epochs is not None:
        changes["steps"] = recipe.epochs * per_epoch
        if "validate_every" not in schedule.model_fields_set:
            changes["validate_every"] = per_epoch
    if recipe.drop_epochs:
        milestones = sorted({epoch * per_epoch for epoch in recipe.drop_epochs})
        changes |= {"shape": "steps", "milestones": milestones}
    rates = recipe.learning_rates or [schedule.learning_rate]
    return [schedule.changed(**changes, learning_rate=float(rate)) for rate in rates]


class ClassificationJob(TrainingJob[ClassificationRecipe]):
    """Training of a classifier.

    With several `learning_rates`, each is trained in its own folder, and the model with the highest
    validation AUC is kept. Test cases, if any, are evaluated once, at the end; `answers.csv` then
    holds the predictions of all validation and test cases.
    """

    keeps_last = False
    data: ClassificationData
    form: ClassifierInput
    sizes: dict[str, Any]
    start: VitClassifier
    images: Mapping[str, PreparedImages]

    def plan(self) -> None:
        """Read the data, build the network, and report the classes."""
        run = self.run
        self.data = read_data(self.recipe, run.file.path)
        self.sizes = sizes = sizes_of(self.recipe, self.data)
        self.form = form_of(self.recipe, sizes, self.data)
        table = zip(self.form.size, sizes["fixed_patch"], strict=True)
        sizes["position_table"] = [n // p for n, p in table]
        self.start = self._start()
        run.report({"classes": list(self.data.classes), "cases": self.data.counts()})
        for note in self.data.notes:
            run.report({"event": "patients", "sentence": f"Look at this: {note}."})

    def prepare(self) -> None:
        """Pre-process the images of each split, and report those that are in several."""
        self.images = self.run.reporter.written(self._prepare)
        if found := _copies(self.images):
            shown = listed(found, SHOWN)
            sentence = f"Look at this: images in several splits: {shown}."
            self.run.report({"event": "copies", "sentence": sentence})

    def decided_keys(self) -> dict[str, Any]:
        """Return the recipe with network and batch, and the cases that were set aside by name."""
        keys = {"network": self.recipe.network, "batch_size": self.recipe.batch_size}
        if not self.data.set_aside:
            return keys
        # Another split of a folder that has grown would test on what was learned from.
        split = {part: list(names) for part, names in self.data.set_aside.items()}
        return {**keys, "data": {**self.run.file.keys["data"], "split": split}}

    def trials(self) -> Sequence[Trial]:
        """Return one trial per learning rate."""
        run, cases = self.run, len(self.data.splits["train"])
        schedules = plan_of(self.recipe, cases, processes=world())
        return [
            Trial(
                run.output if len(schedules) == 1 else run.output / f"rate_{s.learning_rate:g}",
                s,
                {"learning_rate": s.learning_rate},
            )
            for s in schedules
        ]

    def validation(self) -> Validate:
        """Return the validation, with AUC and accuracy."""
        network = self._answering()

        def validate(state: State) -> dict[str, float]:
            network.load_state_dict(state)
            found = _measures(self._answer(network, "val"), self.data.splits["val"].labels)
            # Break ties of AUC, which are common with few cases, by cross-entropy.
            return {"score": found["auc"] - TIE * found["cross_entropy"], **found}

        return validate

    def task(self) -> Task:
        """Return the training task on the prepared images."""
        recipe = self.recipe
        return ClassificationTask(
            copy.deepcopy(self.start),
            CaseDraw(
                self.images["train"],
                recipe.batch_size,
                random_intensity=recipe.random_intensity,
                flips=recipe.flips,
            ),
        )

    def content(self) -> dict[str, Any]:
        """Return the part of the checkpoint's recipe that `pumit predict` needs."""
        return {
            "kind": "classifier",
            "network": self.recipe.network,
            "sizes": dict(self.sizes),
            "input": self.form.as_recipe(),
            "classes": [{"name": name} for name in self.data.classes],
            "is_multi_label": self.data.is_multi_label,
        }

    def training_facts(self, trial: Trial) -> dict[str, Any]:
        """Return settings and numbers of cases for the checkpoint."""
        origin = self._origin()
        return {
            **self.recipe.named(*REPEATED),
            **({"initial": origin} if origin else {}),
            "learning_rate": trial.schedule.learning_rate,
            "cases": self.data.counts(),
            "schedule": dict(self.run.file.keys["schedule"]),
        }

    def metrics(self, found: Mapping[str, float]) -> dict[str, Any]:
        """Return the metrics of the validation cases."""
        return {"val": {k: v for k, v in found.items() if k != "score"}}

    def evaluate_best(self, best: Sequence[Path]) -> None:
        """Evaluate the best saved weights, and write the model with its metrics."""
        found = [read_recipe(path)[0]["metrics"]["val"] for path in best]
        merits = [
            (m["auc"], -m["cross_entropy"], path) for m, path in zip(found, best, strict=True)
        ]
        checkpoint = load_checkpoint(max(merits)[-1])
        network = self._answering()
        network.load_state_dict(checkpoint.state)
        answers = {s: self._answer(network, s) for s in SPLITS[1:] if s in self.data.splits}
        measured = {s: _measures(a, self.data.splits[s].labels) for s, a in answers.items()}
        target, written = self.run.output / "answers.csv", self.run.reporter.written
        written(lambda: _write_answers(target, self.data, answers))
        content = {**checkpoint.recipe, "metrics": measured}
        written(lambda: save_checkpoint(self.run.model, checkpoint.state, content))
        self.run.report(
            {
                "model": self.run.model.name,
                "best_step": content["step"],
                "learning_rate": content["training"]["learning_rate"],
                **measured,
            }
        )

    def smaller(self) -> str | None:
        """Halve the batch."""
        return self.half_the_batch("images")

    def _prepare(self) -> dict[str, PreparedImages]:
        """Return the images of each split; the first process reads and caches those from files."""
        prepared = {}
        for name, cases in self.data.splits.items():
            if cases.files:
                folder = self.run.output / "prepared"
                RankSync().run_on_first(partial(keep_prepared, cases, self.form, folder))
                prepared[name] = keep_prepared(cases, self.form, folder)
            else:
                prepared[name] = PreparedImages(cases, self.form)
                prepared[name][0]  # raises if an image does not fit the network
        return prepared

    def _start(self) -> VitClassifier:
        """Return the initial network, shared by all learning rates."""
        run, recipe = self.run, self.recipe
        torch.manual_seed(self.recipe.seed)
        network = build_network(recipe.network, **self.sizes)
        assert isinstance(network, VitClassifier)
        if recipe.initial is not None:
            load_initial_encoder(network.vit, run.file.model(recipe.initial))
        elif recipe.eva02 is not None:
            from pumit.models.eva02_file import load_eva02

            load_eva02(network.vit, run.file.path(recipe.eva02))
        return network

    def _origin(self) -> dict[str, str]:
        """Return the origin of the initial weights for the checkpoint; empty for random weights."""
        model = self.recipe.initial or self.recipe.eva02
        return {} if model is None else origin_of(self.run.file.model(model))

    def _answering(self) -> VitClassifier:
        """Return a network for inference."""
        return copy.deepcopy(self.start).eval().requires_grad_(False).to(self.run.device)

    def _answer(self, network: nn.Module, split: str) -> npt.NDArray[np.float32]:
        return probabilities_of(
            network,
            self.images[split],
            batch_size=self.recipe.batch_size,
            is_multi_label=self.data.is_multi_label,
        )


def sizes_of(recipe: ClassificationRecipe, data: ClassificationData) -> dict[str, Any]:
    """Return the sizes of the network for this data set; the published ones by default."""
    name = recipe.network
    given = {**recipe.network_sizes, "num_classes": len(data.classes)}
    if name not in RECIPES or RECIPES[name].class_name != VitClassifier.__name__:
        known = [k for k, r in RECIPES.items() if r.class_name == VitClassifier.__name__]
        raise PumitError(f"{name!r} is no classifier; known: {', '.join(known)}.")
    with torch.device("meta"):
        build_network(name, **given)  # raises on a mismatch
    return {**RECIPES[name].sizes, **given}


def _copies(images: Mapping[str, PreparedImages]) -> list[str]:
    """Return which images of files equal one of an earlier split."""
    first: dict[str, tuple[str, str]] = {}
    found = []
    for split, part in images.items():
        for name, file in zip(part.cases.names, part.kept or (), strict=False):
            where, same = first.setdefault(file_sha256(file), (split, name))
            found += [f"{name} is {same}"] if where != split else []
    return found


def _measures(probabilities: npt.NDArray[np.float32], labels: Labels) -> dict[str, float]:
    """Return AUC, accuracy and cross-entropy, rounded to six places."""
    found = {
        "auc": auc(probabilities, labels),
        "accuracy": accuracy(probabilities, labels),
        "cross_entropy": cross_entropy(probabilities, labels),
    }
    return {name: round(value, 6) for name, value in found.items()}


def _write_answers(
    target: Path, data: ClassificationData, answers: Mapping[str, npt.NDArray[np.float32]]
) -> None:
    """Write a row for each case: split, case, true class, probability of each class (N, classes).

    Raises:
        ExportError: If the file cannot be written.
    """
    with (
        atomic_path(target) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as handle,
    ):
        table = csv.writer(handle)
        table.writerow(["split", "case", "truth", *data.classes])
        for split, found in answers.items():
            cases = data.splits[split]
            for name, label, row in zip(cases.names, cases.labels, found, strict=True):
                true = np.flatnonzero(label) if label.ndim else [label]
                truth = ";".join(data.classes[k] for k in true)
                table.writerow([split, name, truth, *(f"{p:.6f}" for p in row)])
