"""Readers of classification data: MedMNIST files, and folders with one subfolder per class."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import PumitError, VolumeError
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.io.dicom.files import read_header
from pumit.io.parser_errors import parsing
from pumit.runs import LOG
from pumit.system.wording import count_of, listed
from pumit.training.classification.cases import (
    SPLITS,
    Cases,
    ClassificationData,
    Labels,
    named_split,
    require_split,
)
from pumit.training.data.found_cases import bare_name
from pumit.training.data.split import (
    Groups,
    about_guess,
    grouped,
    guessed_patient,
    guessed_pattern,
    matched_patients,
)
from pumit.volume import Volume

COLOUR = 3
SHOWN = 3  # scans of a patient
# Suffixes of scans.
VOLUMES = (".nii.gz", ".nii", ".nrrd", ".nhdr", ".mha", ".mhd")
PICTURES = (".png", ".jpg", ".jpeg")
SUFFIXES = (*VOLUMES, ".dcm", ".zip", *PICTURES)
# Folders of a data set for segmentation, which are no classes.
LAYOUT_FOLDERS = {"images", "labels", "masks", "imagesTr", "labelsTr", "imagesTs", "labelsTs"}
# Folders of splits, by what labs call them.
SPLIT_FOLDERS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
Scans = dict[str, Path]  # by CLASS/NAME, sorted


def _image(images: npt.NDArray[Any], is_planar: bool, is_colour: bool, index: int) -> Volume:
    """Return one of images (N, D, H, W) or (N, H, W), colour last with 3 channels."""
    image = np.moveaxis(images[index], -1, 0) if is_colour else images[index]
    if is_planar:
        return Volume(np.expand_dims(image, -3), (PLANAR_SLICE_SPACING_MM, 1.0, 1.0))
    return Volume(image)


def _file(paths: Sequence[Path], index: int) -> Volume:
    return Volume.read(paths[index])


def read_medmnist(path: Path, classes: Sequence[str] = ()) -> ClassificationData:
    """Read a file of MedMNIST v2, 2D or 3D, of any image size.

    It holds `train_images`, `train_labels` and the same for `val` and `test`: images of shape
    (N, D, H, W) or (N, H, W), colour last, uint8 in MedMNIST; labels (N, 1), or multi-label 0 or 1
    (N, L).

    Args:
        classes: Class names in order of their indices; by default the indices.

    Raises:
        PumitError: If it is another file, or an array is invalid.

    Source:
        Yang et al., MedMNIST v2, 2023.
    """
    arrays = _read_arrays(path)
    shapes = {arrays[f"{split}_images"].shape[1:] for split in SPLITS}
    if len(shapes) > 1:
        raise PumitError(f"The images of {path.name} differ in size or channels: {shapes}.")
    (shape,) = shapes
    is_colour = len(shape) > 2 and shape[-1] == COLOUR
    dimensions = len(shape) - is_colour
    if dimensions not in (2, 3) or 0 in shape:
        raise PumitError(
            f"The images of {path.name} must be (N, D, H, W) or (N, H, W), colour last; each is "
            f"{shape}."
        )
    labels = {split: _labels_of(arrays, split, path.name) for split in SPLITS}
    names = _class_names(labels, tuple(classes), path.name)
    splits = {}
    for split in SPLITS:
        images = arrays[f"{split}_images"]
        cases = [f"{split} image {i}" for i in range(len(images))]
        read = partial(_image, images, dimensions == 2, is_colour)
        splits[split] = Cases(cases, labels[split], read)
    has_bytes = all(arrays[f"{split}_images"].dtype == np.uint8 for split in SPLITS)
    return ClassificationData(names, splits, is_stored_as_shown=True, has_bytes=has_bytes)


def _read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    keys = [f"{split}_{what}" for split in SPLITS for what in ("images", "labels")]
    with parsing(f"file {path.name}"):
        file = np.load(path, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise PumitError(f"{path.name} is no .npz file of MedMNIST.")
        with file:
            missing = [name for name in keys if name not in file]
            if missing:
                raise PumitError(
                    f"{path.name} holds no {missing[0]}; a MedMNIST file holds {', '.join(keys)}."
                )
            arrays = {name: _member(file, name, path.name) for name in keys}
    odd = [name for name, array in arrays.items() if array.dtype.kind not in "biuf"]
    if odd:
        raise PumitError(f"{odd[0]} of {path.name} holds no numbers, but {arrays[odd[0]].dtype}.")
    return arrays


def _member(file: Any, name: str, where: str) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = file[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise PumitError(
            f"{name} of {where} holds Python objects, which could run any code; only numbers are "
            "read."
        ) from None
    return array


def _labels_of(arrays: dict[str, npt.NDArray[Any]], split: str, where: str) -> Labels:
    """Return class indices (N,), or multi-label 0 or 1 (N, L)."""
    given, images = arrays[f"{split}_labels"], arrays[f"{split}_images"]
    if given.ndim not in (1, 2) or images.ndim == 0 or len(given) != len(images):
        raise PumitError(
            f"{split}_labels of {where} have shape {given.shape}, but there are "
            f"{len(images) if images.ndim else 0} images; there is one row for each."
        )
    labels = given.astype(np.int64)
    if (labels != given).any():
        raise PumitError(f"{split}_labels of {where} are not whole numbers.")
    return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels


def _class_names(labels: dict[str, Labels], names: tuple[str, ...], where: str) -> tuple[str, ...]:
    """Return the class names, after checking that all labels are in range."""
    widths = {split: found.shape[1:] for split, found in labels.items()}
    if len(set(widths.values())) > 1:
        raise PumitError(f"The labels of {where} differ in number: {widths}.")
    several = labels["train"].ndim == 2
    count = labels["train"].shape[1] if several else int(labels["train"].max(initial=0)) + 1
    if not several:
        count = max(count, len(names))
    if names and len(names) != count:
        raise PumitError(f"{where} has {count} classes, but the recipe names {len(names)}.")
    highest = 1 if several else count - 1
    for split, found in labels.items():
        wrong = found[(found < 0) | (found > highest)]
        if wrong.size:
            raise PumitError(
                f"{split}_labels of {where} hold {wrong.flat[0]}, which is out of range: they go "
                f"from 0 to {highest}."
            )
    return names or tuple(str(k) for k in range(count))


def read_class_folders(
    folder: Path,
    *,
    split: dict[str, Any] | None = None,
    patient: str | None = None,
    seed: int = 0,
) -> ClassificationData:
    """Find the scans of `CLASS/*`, or of `train/CLASS/*` with `val` and `test` next to it.

    A scan is a file in any format of `Volume.read`, or a folder of DICOM files. A patient may have
    a folder of scans, CLASS/PATIENT/NAME. Without `val`, a random share of the patients of each
    class is set aside; without split folders, one for `test` too. The scans of a patient stay
    together.

    Args:
        split: Shares to set aside, see `require_split`, or names as in `Cases.names`.
        patient: Regular expression for the patient in `CLASS/NAME`, as its first group or the
            whole match. By default patients are read from DICOM files and folders, else guessed
            from the names of files, which are compared across classes.
        seed: Seed of the split; the same files give the same splits everywhere.

    Raises:
        PumitError: If a class is empty, or has too few patients to be split.
    """
    named = named_split(split)
    shares = {} if named else require_split(split)
    notes: tuple[str, ...] = ()
    given = _split_folders(folder)
    missing: tuple[str, ...] = SPLITS[1:]
    if "train" in given:
        found = {name: _scans_of(path) for name, path in given.items()}
        classes = _classes_of(found["train"])
        for name, scans in found.items():
            unknown = [c for c in _classes_of(scans) if c not in classes]
            if unknown:
                raise PumitError(f"Class {unknown[0]!r} of {name} is not among those of train.")
        missing = () if "val" in found else ("val",)
        notes = _in_several(found) if patient is None else ()
    else:
        found = {"train": _scans_of(folder)}
        classes = _classes_of(found["train"])
    if missing and named:
        found |= _split_as_named(found["train"], named, folder)
    elif missing:
        wanted = {part: shares[part] for part in missing if shares[part] > 0}
        parts, about_patients = _split(found["train"], wanted, patient, seed)
        found |= parts
        notes = (*notes, *about_patients)
    splits = {}
    for split_name, scans in found.items():
        paths = list(scans.values())
        labels = np.array([classes.index(_class_of(name)) for name in scans], dtype=np.int64)
        names = [path.relative_to(folder).as_posix() for path in paths]
        splits[split_name] = Cases(names, labels, partial(_file, paths), paths)
    set_aside = {part: splits[part].names for part in missing if part in splits}
    return ClassificationData(
        classes, splits, is_stored_as_shown=False, notes=notes, set_aside=set_aside
    )


def _split_folders(folder: Path) -> dict[str, Path]:
    """Return the folder of each split that has one.

    Raises:
        PumitError: If two are of one split, or there is none to learn from.
    """
    inner = [path for path in _visible(folder) if path.is_dir()]
    found: dict[str, Path] = {}
    for path in inner:
        split = SPLIT_FOLDERS.get(path.name.lower(), "")
        if split in found:
            raise PumitError(
                f"{folder.name!r} holds {found[split].name} and {path.name}; join them."
            )
        found |= {split: path} if split else {}
    if found and "train" not in found and len(found) == len(inner):
        raise PumitError(
            f"{folder.name!r} holds {' and '.join(p.name for p in inner)}, but no folder train."
        )
    return {name: found[name] for name in SPLITS if name in found}


def _in_several(found: Mapping[str, Scans]) -> tuple[str, ...]:
    """Return a note on patients in several splits that the folders give."""
    scans = {f"{part} {name}": path for part in found for name, path in found[part].items()}
    groups, _ = _patients(scans, None, by_equal_names=False)
    torn = [names for names in groups.values() if len({n.partition(" ")[0] for n in names}) > 1]
    if not torn:
        return ()
    shown = listed((name.replace(" ", "/", 1) for name in torn[0]), SHOWN)
    patients = count_of(len(torn), "patient")
    return (f"{patients} in several splits, such as {shown}: the model is tested on them, too",)


def _class_of(name: str) -> str:
    return name.partition("/")[0]


def _classes_of(scans: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(_class_of, scans)))


def _scans_of(folder: Path) -> Scans:
    """Return the scans of each class.

    Raises:
        PumitError: If there is no class, or a class is empty.
    """
    inside = [path for path in _visible(folder) if path.is_dir() and not _holds_runs(path)]
    scans = {inner.name: _scans_in(inner) for inner in inside}
    if not scans:
        raise PumitError(
            f"The folder {folder.name!r} holds no folders; it needs one for each class."
        )
    if set(scans) <= LAYOUT_FOLDERS:
        raise PumitError(
            f"{folder.name!r} is laid out for segmentation ({', '.join(sorted(scans))}); "
            "classification needs a folder of scans for each class."
        )
    empty = [name for name, paths in scans.items() if not paths]
    if empty:
        raise PumitError(f"The class folder {empty[0]!r} holds no scan; fill it or remove it.")
    return {path.relative_to(folder).as_posix(): path for paths in scans.values() for path in paths}


def _scans_in(folder: Path) -> list[Path]:
    """Return the files and DICOM series of a folder, and those in folders of patients."""
    scans = []
    for path in _visible(folder):
        if path.is_dir():
            scans += _scans_in(path) if _is_of_patient(path) else [path]
        elif path.name.lower().endswith(SUFFIXES):
            scans.append(path)
    return scans


def _is_of_patient(folder: Path) -> bool:
    """Whether a folder holds scans, not the slices of one."""
    inner = _visible(folder)
    names = [path.name.lower() for path in inner if not path.is_dir()]
    has_volumes = any(name.endswith(VOLUMES) for name in names)
    return has_volumes or (bool(inner) and all(name.endswith(PICTURES) for name in names))


def _holds_runs(folder: Path) -> bool:
    """Whether a folder is an earlier training, or holds some, as `runs` does."""
    return (folder / LOG).is_file() or any(folder.glob(f"*/{LOG}"))


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _split_as_named(
    scans: Scans, named: Mapping[str, Sequence[str]], folder: Path
) -> dict[str, Scans]:
    """Set aside the named scans.

    Raises:
        PumitError: If one of them is missing.
    """
    part_of = {name: part for part, names in named.items() for name in names}
    found: dict[str, Scans] = {part: {} for part in ("train", *part_of.values())}
    for key, path in scans.items():
        found[part_of.pop(path.relative_to(folder).as_posix(), "train")][key] = path
    if part_of:
        raise PumitError(
            f"split names {next(iter(part_of))!r}, which is no scan of {folder.name!r}; put it "
            "back, or take it out of split."
        )
    return found


def _split(
    scans: Scans, shares: Mapping[str, float], patient: str | None, seed: int
) -> tuple[dict[str, Scans], tuple[str, ...]]:
    """Set aside the same share of the patients of each class, at least one, with notes.

    Classes of the fewest patients are split first, as a patient may have scans of several.
    """
    groups, notes = _patients(scans, patient)
    of_class: dict[str, list[str]] = {name: [] for name in _classes_of(scans)}
    for key, names in groups.items():
        for name in dict.fromkeys(map(_class_of, names)):
            of_class[name].append(key)
    generator = np.random.default_rng(seed)
    order = {name: generator.permutation(len(keys)) for name, keys in of_class.items()}
    part_of: dict[str, str] = {}
    for name in sorted(of_class, key=lambda name: len(of_class[name])):
        keys = [of_class[name][i] for i in order[name]]
        if len(keys) <= len(shares):
            of_scans = sum(_class_of(scan) == name for scan in scans)
            few = count_of(of_scans, "scan")
            if of_scans > len(keys):
                few += f" of {count_of(len(keys), 'patient')}"
            raise PumitError(
                f"Class {name!r} has {few}, too few for {', '.join(('train', *shares))}; give at "
                f"least {len(shares) + 1}, or make folders of these names yourself."
            )
        left = iter([key for key in keys if key not in part_of])
        for part, share in shares.items():
            missing = max(1, round(share * len(keys))) - [part_of.get(k) for k in keys].count(part)
            part_of |= dict.fromkeys(islice(left, max(0, missing)), part)
        part_of |= dict.fromkeys(left, "train")
        if "train" not in {part_of[key] for key in keys}:
            raise PumitError(f"Class {name!r} has no case left to learn from; make split smaller.")
    patient_of = {name: key for key, names in groups.items() for name in names}
    found: dict[str, Scans] = {part: {} for part in ("train", *shares)}
    for name, path in scans.items():
        found[part_of[patient_of[name]]][name] = path
    return found, notes


def _patients(
    scans: Scans, pattern: str | None, *, by_equal_names: bool = True
) -> tuple[Groups, tuple[str, ...]]:
    """Group scans by patient, with a note if patients were guessed.

    Args:
        by_equal_names: Whether scans of the same name are of one patient.
    """
    if pattern is not None:
        return matched_patients(list(scans), pattern), ()
    stated, bare = {}, {}
    for name, path in scans.items():
        inner = name.split("/")[1:]
        known = _dicom_patient(path) or (inner[0] if len(inner) > 1 else "")
        if known:
            stated[name] = known
        else:
            bare[name] = bare_name(path)
    guess = guessed_pattern(list(bare.values()))

    def patient_of(name: str) -> str:
        patient = guessed_patient(guess, bare[name]) if guess else ""
        return patient or (bare[name] if by_equal_names else name)

    guessed = grouped(bare, patient_of)
    groups = grouped(stated, lambda name: stated[name])
    for key, names in guessed.items():
        groups.setdefault(key, []).extend(names)
    is_note = any(len(names) > 1 for names in guessed.values())
    return groups, ((about_guess(guessed),) if is_note else ())


def _dicom_patient(path: Path) -> str:
    """Return the patient that a DICOM file, or the first of a series, states; "" for none."""
    files = _visible(path) if path.is_dir() else [path]
    if not files or not (path.is_dir() or path.suffix.lower() == ".dcm"):
        return ""
    try:
        return read_header(files[0]).patient
    except (OSError, VolumeError):
        return ""


def read_classification_data(
    path: Path,
    *,
    classes: Sequence[str] = (),
    split: dict[str, Any] | None = None,
    patient: str | None = None,
    seed: int = 0,
) -> ClassificationData:
    """Read a MedMNIST file, or a folder with one subfolder per class.

    Args:
        path: `.npz`, or a folder; see `read_medmnist` and `read_class_folders`.
        classes: Class names of a MedMNIST file, in order of their indices.
        split: Shares of "val" and "test", or their cases by name, for folders without them.
        patient: Pattern of patients in file names, see `read_class_folders`.

    Raises:
        PumitError: If the path does not exist, or a classifier cannot be trained on its data.
    """
    path = path.absolute()  # which has a name, also for "."
    if path.is_dir():
        if classes:
            raise PumitError(f"classes are the folders of {path.name}; leave the key classes out.")
        data = read_class_folders(path, split=split, patient=patient, seed=seed)
    elif path.is_file():
        if split is not None or patient is not None:
            raise PumitError(f"{path.name} says itself which cases are for what; leave split out.")
        data = read_medmnist(path, classes)
    else:
        raise PumitError(
            f"There is no {path.name!r} to learn from; data is an .npz file of MedMNIST or a "
            "folder with one folder per class."
        )
    data.check(path.name)
    return data
