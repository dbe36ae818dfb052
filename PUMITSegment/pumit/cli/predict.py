"""`pumit predict`: scans segmented or classified by a model, with nobody clicking."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumit.cli.classify import classify_images
from pumit.cli.segment import check_target, numbers, ras_to_lps
from pumit.cli.shared.progress import Steps, progress_bar
from pumit.errors import ExportError, VolumeError
from pumit.prompts import BoxPrompt

if TYPE_CHECKING:
    from pumit.segmentation import Algorithm, LabelMap
    from pumit.volume import Volume

# What a folder's files are known by; a folder without any is a DICOM series.
IMAGE_SUFFIXES = (".nii.gz", ".nii", ".nrrd", ".nhdr", ".mha", ".mhd", ".png", ".jpg", ".jpeg")

Answerer = Callable[["Volume", Callable[[float], None]], "LabelMap"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit predict`."""
    parser.add_argument(
        "images",
        nargs="+",
        type=Path,
        metavar="IMAGE",
        help="NIfTI, NRRD, MHA, DICOM folder or zip, PNG, JPEG; or a folder of such files",
    )
    parser.add_argument(
        "--model",
        required=True,
        help="an automatic model, a promptable one or a classifier: name, or a checkpoint",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        help="OUT.(nii.gz|nrrd|seg.nrrd|mha|dcm), for several images a folder; of a classifier "
        "OUT.(csv|json), or nothing",
    )
    parser.add_argument("--format", default=".nii.gz", help="file format in a folder (%(default)s)")
    parser.add_argument("--box", metavar="R,A,S,R,A,S", help="only between these corners, mm")
    parser.add_argument("--series", help="SeriesInstanceUID, where a folder holds several")
    parser.add_argument("--channel", type=int, default=0, help="channel of a multi-channel image")
    parser.add_argument(
        "--channel-files",
        action="store_true",
        help="NAME_0000, NAME_0001... are one scan's channels",
    )
    parser.add_argument("--overlap", type=float, default=0.75, help="of windows (%(default)s)")
    parser.add_argument("--flips", action="store_true", help="average eight reflections: slower")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def suffix_of(path: Path, suffixes: tuple[str, ...]) -> str | None:
    """The suffix among these that a file's name ends with, in lower case, or None."""
    return next((s for s in suffixes if path.name.lower().endswith(s)), None)


def find_images(paths: list[Path]) -> list[Path]:
    """Files and DICOM folders; a folder of image files is replaced by its files, sorted."""
    found = []
    for path in paths:
        inside = []
        if path.is_dir():
            inside = sorted(
                p for p in path.iterdir() if p.is_file() and suffix_of(p, IMAGE_SUFFIXES)
            )
        found += inside or [path]
    return found


def targets_of(args: argparse.Namespace) -> list[tuple[Path, Path]]:
    """Each image and the file for its result.

    Raises:
        ExportError: If a result cannot be written, or two would have the same name.
        VolumeError: If files of channels are wanted and there are none.
    """
    from pumit.export.write import SUFFIXES, check_suffix
    from pumit.io.labels.channel_files import scan_name

    images = find_images(args.images)
    if args.channel_files:
        images = [image for image in images if scan_name(image)]
        if not images:
            raise VolumeError("No file is called NAME_0000; give the first channel of each scan.")
    is_folder_wanted = len(images) > 1 or args.output.is_dir()
    if not is_folder_wanted and suffix_of(args.output, SUFFIXES):
        check_target(args.output)
        return [(images[0], args.output)]
    if suffix_of(args.output, SUFFIXES) and not args.output.is_dir():
        raise ExportError(
            f"There are {len(images)} images, but the output {args.output.name!r} is one file; "
            "give a folder."
        )
    if not is_folder_wanted:
        check_suffix(args.output)
    if not args.output.is_dir():
        check_target(args.output)
    suffix = args.format if args.format.startswith(".") else f".{args.format}"
    check_suffix(f"name{suffix}")
    pairs = []
    for image in images:
        ending = suffix_of(image, (*IMAGE_SUFFIXES, ".zip")) or ""
        stem = image.name[: len(image.name) - len(ending)]
        stem = scan_name(image) or stem if args.channel_files else stem
        pairs.append((image, args.output / f"{stem}{suffix}"))
    names = [target.name for _, target in pairs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ExportError(f"Several images would be written as {twice[0]!r}; rename them.")
    inputs = {image.resolve() for image in images}
    overwritten = [target.name for _, target in pairs if target.resolve() in inputs]
    if overwritten:
        raise ExportError(f"{overwritten[0]!r} would replace its own image; give another folder.")
    return pairs


def kind_of_model(model: str) -> str:
    """What the model does, by its recipe alone."""
    from pumit.models.card import kind_of
    from pumit.models.checkpoint import read_recipe
    from pumit.models.index import find_model

    return kind_of(read_recipe(find_model(model))[0])


def load_answerer(args: argparse.Namespace) -> tuple[Answerer, Algorithm]:
    """Load the model, automatic or promptable, and how its results are signed."""
    from pumit.inference.automatic.segmentation import load_automatic
    from pumit.inference.interactive.segmenter import load_segmenter
    from pumit.models.consent import require_consent
    from pumit.segmentation import Algorithm

    corners = None
    if args.box:
        values = numbers(args.box, 6, "--box")
        lower, upper = ras_to_lps(values[:3]), ras_to_lps(values[3:])
        corners = BoxPrompt.from_bounds(lower, upper).corners_lps
    require_consent(args.model)
    if kind_of_model(args.model) == "promptable":
        from pumit.inference.automatic.everything import segment_everything
        from pumit.inference.interactive.session import InteractiveSession

        segmenter = load_segmenter(args.model, device=args.device)

        def everything(volume: Volume, progress: Callable[[float], None]) -> LabelMap:
            session = InteractiveSession(segmenter)
            session.set_volume(volume, channel=args.channel)
            return segment_everything(session, roi_corners_lps=corners, progress=progress)

        name = f"PUMIT {segmenter.name}"
        return everything, Algorithm(name, segmenter.version, "AUTOMATIC")
    model = load_automatic(args.model, device=args.device)

    def automatic(volume: Volume, progress: Callable[[float], None]) -> LabelMap:
        return model.segment(
            volume,
            channel=args.channel,
            roi_corners_lps=corners,
            overlap=args.overlap,
            averages_flips=args.flips,
            progress=progress,
        )

    return automatic, Algorithm(f"PUMIT {model.name}", model.version, "AUTOMATIC")


def run(args: argparse.Namespace) -> int:
    """Run `pumit predict`."""
    if kind_of_model(args.model) == "classifier":
        return classify_images(args, find_images(args.images))
    if args.output is None:
        raise ExportError(f"The model {args.model!r} segments; say with -o where the result goes.")
    pairs = targets_of(args)
    rows = []
    with progress_bar(quiet=args.json) as step:
        step("Loading the model", 0.0)
        answer, algorithm = load_answerer(args)
        if pairs[0][1].parent == args.output:
            _make_folder(args.output)
        for i, (image, target) in enumerate(pairs):
            try:
                rows.append(_predict(args, image, target, answer, algorithm, step, i / len(pairs)))
            except (ExportError, VolumeError) as error:
                if len(pairs) == 1:
                    raise
                # Of many scans, one that cannot be used must not cost the others.
                rows.append({"image": image.name, "error": str(error)})
    if args.json:
        print(json.dumps(rows))
    else:
        for row in rows:
            names = ", ".join(found["name"] for found in row.get("classes", ()))
            print(f"{row['image']}: {row.get('error') or names or 'nothing found'}")
    failed = [row for row in rows if "error" in row]
    if failed:
        what = f"{len(failed)} of {len(rows)} images could not be done, first: "
        raise VolumeError(f"{what}{failed[0]['image']}: {failed[0]['error']}")
    return 0


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise ExportError(f"Cannot make the folder {folder.name}: {error.strerror}.") from None


def _predict(
    args: argparse.Namespace,
    image: Path,
    target: Path,
    answer: Answerer,
    algorithm: Algorithm,
    step: Steps,
    start: float,
) -> dict[str, Any]:
    """One image; returns what was found."""
    import numpy as np

    from pumit.export.classes import segments_of
    from pumit.export.labelmap import LABELMAP_SUFFIXES, write_labels
    from pumit.export.write import SEG_NRRD_SUFFIX, write_segmentation
    from pumit.io.labels.channel_files import channel_files, read_channels
    from pumit.segmentation import Segmentation
    from pumit.volume import Volume

    step(f"Reading {image.name}", start)
    if args.channel_files:
        volume = read_channels(channel_files(image))
    else:
        volume = Volume.read(image, series=args.series)
    found = answer(volume, lambda share: step(f"Segmenting {image.name}", max(start, share)))
    is_label_map = suffix_of(target, (SEG_NRRD_SUFFIX, *LABELMAP_SUFFIXES)) != SEG_NRRD_SUFFIX
    if is_label_map and suffix_of(target, LABELMAP_SUFFIXES):
        # A label means the same class in every file, and a file without any says so. Of regions
        # the later one stands, as in nnU-Net; .seg.nrrd and DICOM-SEG hold all of each.
        write_labels(found.labels, volume, target)
    else:
        write_segmentation(Segmentation(volume, segments_of(found), algorithm), target)
    voxels = [int(np.count_nonzero(found.mask(i + 1))) for i in range(len(found.classes))]
    return {
        "image": image.name,
        "output": target.name,
        "model": algorithm.name,
        "classes": [
            {"label": i, "name": label.name, "voxels": count}
            for i, (label, count) in enumerate(zip(found.classes, voxels, strict=True), start=1)
            if count
        ],
    }
