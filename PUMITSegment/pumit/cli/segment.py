"""`pumit segment`: segment a scan from prompts and write the result to a file."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pumit.cli.shared.output import Steps, progress_bar
from pumit.errors import ExportError, PromptError, PumitError
from pumit.prompts import BoxPrompt, PointPrompt, Prompt
from pumit.system.files import refuse_replacing
from pumit.system.watch import Watch
from pumit.system.wording import digits_for, volume_text

if TYPE_CHECKING:
    from pumit.export.companions import Companions
    from pumit.export.terminology import SegmentTerminology
    from pumit.inference.interactive.segmenter import Segmenter
    from pumit.inference.interactive.session import InteractiveSession
    from pumit.segmentation import Segment, Segmentation
    from pumit.structures.find import FoundStructure, Search
    from pumit.volume import Frame, Volume


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit segment`."""
    parser.add_argument("image", type=Path, help="NIfTI, NRRD, MHA, DICOM folder or zip, PNG, JPEG")
    parser.add_argument(
        "--point",
        action="append",
        default=[],
        metavar="R,A,S",
        help="positive click, in the frame of --frame; for a 2D image also COLUMN,ROW",
    )
    parser.add_argument(
        "--negative",
        action="append",
        default=[],
        metavar="R,A,S",
        help="negative click, same format",
    )
    parser.add_argument(
        "--box", metavar="R,A,S,R,A,S", help="two opposite corners, in the frame of --frame"
    )
    parser.add_argument(
        "--voxel",
        action="append",
        default=[],
        metavar="I,J,K",
        help="positive click as column, row, slice from 0, regardless of --frame",
    )
    parser.add_argument(
        "--frame",
        choices=("RAS", "LPS", "IJK"),
        default="RAS",
        help="coordinate frame: RAS in mm as in Slicer, LPS in mm as in DICOM, or voxel indices",
    )
    parser.add_argument("--prompts", type=Path, help="Slicer markups file, .mrk.json")
    parser.add_argument(
        "--answer",
        type=int,
        default=1,
        metavar="N",
        help="use the N-th candidate mask for a first prompt, 1 being the most trusted; the "
        "result states their number",
    )
    parser.add_argument(
        "--find",
        metavar="NAME",
        help="segment structures by their names (left kidney; liver, spleen; kidneys; "
        "SCT:10200004), or everything; points and boxes given with one correct the result",
    )
    parser.add_argument(
        "--find-model",
        metavar="M",
        help="automatic model for --find; default: the best one that has the structure",
    )
    parser.add_argument(
        "--modality",
        choices=("CT", "MR", "PT"),
        default="",
        help="modality of the scan for --find, if the file does not state it",
    )
    parser.add_argument(
        "--anyway",
        action="store_true",
        help="also use a model trained on another modality, or on a scan unlike its training data",
    )
    parser.add_argument("--series", help="SeriesInstanceUID, if the folder holds several series")
    parser.add_argument(
        "--channel",
        type=int,
        metavar="N",
        help="channel or time point of the scan, from 0; default: the first, with a remark",
    )
    parser.add_argument(
        "--model",
        default="default",
        help="name of an installed model, a checkpoint file, or SAM's or MedSAM's weights "
        "(.pth), which segment a click on its slice, and a box on every slice that it covers",
    )
    parser.add_argument(
        "--size",
        type=int,
        metavar="N",
        help="with SAM: input image size in pixels, such as 2048 (default: its training size)",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps")
    parser.add_argument(
        "--terminology",
        metavar="CODE",
        help="terminology of the segment: a name (liver), a code (SCT:10200004) or an "
        "entry of Slicer's terminologies; default: tissue",
    )
    parser.add_argument("--name", help="name of the segment; default: the terminology's")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        help="OUT.(nii.gz|nrrd|seg.nrrd|mha|dcm|labelmap.dcm|rtstruct.dcm): label map, Slicer's "
        "segmentation, DICOM-SEG, DICOM-SEG of type LABELMAP, RTSTRUCT",
    )
    add_companion_arguments(parser)
    parser.add_argument("--picture", type=Path, help="also write a PNG of the result")
    parser.add_argument(
        "--check-here",
        action="store_true",
        help="also list places where the mask may be wrong, most likely first",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def add_companion_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `--statistics` and `--manifest`."""
    parser.add_argument(
        "--statistics",
        choices=("csv", "json"),
        help="also write volume, intensities, position and diameters of each segment next to the "
        "result, as NAME.statistics.csv or .json",
    )
    parser.add_argument(
        "--manifest",
        action="store_true",
        help="also write NAME.manifest.json next to the result: versions, model, device, "
        "options, and hashes and UIDs of scan and result, without names",
    )


def companions_of(args: argparse.Namespace) -> Companions:
    """Return the companion files that the user requested."""
    from pumit.export.companions import Companions

    return Companions(args.statistics, args.manifest)


TOO_LARGE = "This may be more than you meant: draw a box, or give more points."


def parse_numbers(text: str, count: int, what: str) -> list[float]:
    """Parse comma-separated numbers."""
    try:
        values = [float(v) for v in text.split(",")]
    except ValueError:
        values = []
    if len(values) != count:
        raise PromptError(f"{what} needs {count} numbers separated by commas, got {text!r}.")
    return values


def ras_to_lps(ras: list[float]) -> tuple[float, float, float]:
    """Convert between Slicer's RAS and the library's LPS, mm; the conversion is its own inverse."""
    return (-ras[0], -ras[1], ras[2])


def _position_of(text: str, option: str, frame: Frame) -> tuple[list[float], Frame]:
    """Parse a position; two numbers are the column and row of a picture."""
    if text.count(",") == 1:
        return [*parse_numbers(text, 2, option), 0.0], "IJK"
    return parse_numbers(text, 3, option), "IJK" if option == "--voxel" else frame


def prompts_from(args: argparse.Namespace, volume: Volume | None = None) -> list[Prompt]:
    """Return the prompts in the order box, file, points, voxels, negative points.

    Args:
        volume: The scan; None to check the syntax before the scan is read.

    Raises:
        PromptError: If there are no prompts, one cannot be parsed, or a point is outside the
            scan. The message gives the scan's extent in the frame of the point.
    """
    from pumit.volume import Volume

    scan = volume or Volume(np.zeros((1, 1, 1)))
    prompts: list[Prompt] = []
    if args.box:
        corners = parse_numbers(args.box, 6, "--box")
        given = BoxPrompt.from_bounds(corners[:3], corners[3:]).corners_lps
        places = scan.to_lps(given, args.frame).tolist()
        prompts.append(BoxPrompt(tuple((x, y, z) for x, y, z in places)))
    points: list[tuple[Prompt, Frame]] = []
    if args.prompts:
        from pumit.io.markups import read_markups

        points += [(prompt, "RAS") for prompt in read_markups(args.prompts)]
    for option, is_positive in (("point", True), ("voxel", True), ("negative", False)):
        for text in getattr(args, option):
            values, frame = _position_of(text, f"--{option}", args.frame)
            if not scan.is_planar and text.count(",") == 1:
                raise PromptError(f"--{option} needs 3 numbers in a volume, got {text!r}.")
            x, y, z = scan.to_lps(values, frame).tolist()
            points.append((PointPrompt((x, y, z), is_positive), frame))
    for prompt, frame in points:
        if volume is not None and isinstance(prompt, PointPrompt):
            volume.require_inside(prompt.point_lps, frame)
        prompts.append(prompt)
    if not prompts and not args.find:
        raise PromptError("No prompt is given; use --point, --voxel, --box, --prompts or --find.")
    return prompts


def check_target(path: Path, *inputs: Path | None) -> None:
    """Check, before any long work, that a file can be written and replaces none of the inputs."""
    folder = path.resolve().parent
    if path.is_dir():
        raise ExportError(f"The output {path.name!r} is a folder; give a file name.")
    if folder.is_file():
        raise ExportError(
            f"{folder.name!r} for the output is a file, not a folder; choose another."
        )
    if not folder.is_dir():
        raise ExportError(
            f"The folder {folder.name!r} for the output does not exist; create it first."
        )
    if not os.access(folder, os.W_OK):
        raise ExportError(f"The folder {folder.name!r} is read-only for you; choose another.")
    if path.exists() and not os.access(path, os.W_OK):
        raise ExportError(f"The file {path.name!r} is write-protected; give another name.")
    refuse_replacing(path, inputs)


def _read(args: argparse.Namespace) -> tuple[Volume, list[str]]:
    """Read the scan, or its `--channel`; return remarks on it."""
    from pumit.preprocessing.channels import grey, is_colour
    from pumit.volume import Volume

    volume = Volume.read(args.image, series=args.series)
    if args.channel is not None:
        return replace(volume, array=grey(volume, args.channel)), []
    if volume.channels == 1 or is_colour(volume):
        return volume, []
    return volume, [
        f"The scan has {volume.channels} channels or time points; a model of one takes the first. "
        "--channel chooses another."
    ]


def _segment_image(args: argparse.Namespace, step: Steps) -> tuple[Segmentation, dict[str, Any]]:
    """Read the scan, predict from the prompts, and return the segmentation and facts about it."""
    from pumit.export.terminology import SegmentTerminology, concept_for
    from pumit.export.write import check_source, check_suffix
    from pumit.segmentation import Segmentation
    from pumit.volume import Volume

    check_suffix(args.output)
    for target in filter(None, (args.output, args.picture)):
        check_target(target, args.image, args.prompts)
    if args.picture and args.picture.resolve() == args.output.resolve():
        raise ExportError("--picture would replace the result; give it another name.")
    if args.picture and args.picture.suffix.lower() != ".png":
        raise ExportError("--picture writes PNG; give it a name that ends in .png.")
    terminology = concept_for(args.terminology) if args.terminology else SegmentTerminology()
    prompts = prompts_from(args)
    if args.find and not prompts:
        if args.answer != 1:
            raise PromptError("--find gives one answer; leave out --answer.")
        if args.check_here:
            raise PromptError("--check-here lists places of an answer to prompts; leave it out.")
        return _find_image(args, step)
    if not args.image.exists():
        Volume.read(args.image)  # raises the error before the model is loaded
    step("Loading the model", 0.05)
    # torch is slow to import: check the user's input first.
    from pumit.inference.interactive.segmenter import load_segmenter
    from pumit.models.consent import require_consent

    require_consent(args.model)
    # Load the model first: its compiled graphs are read on another core while the scan is read.
    segmenter = load_segmenter(args.model, device=args.device, size=args.size)
    step("Reading the scan", 0.2)
    try:
        volume, remarks = _read(args)
        check_source(args.output, volume)
        prompts = prompts_from(args, volume)
    except PumitError:
        segmenter.engine.rest()  # do not wait for the graphs at exit
        raise
    from pumit.inference.interactive.session import InteractiveSession

    session = InteractiveSession(segmenter)
    step("Encoding the scan", 0.35)
    session.set_volume(volume)
    if args.find:
        found = _found_in(volume, args, step)
        session.set_mask_prior(found.mask)
        terminology = terminology if args.terminology else _meaning_of(found)
    for prompt in prompts:
        session.add_prompt(prompt)
    answer = session.answer(
        session.prompts(), watch=Watch(progress=lambda share: step("Segmenting", 0.4 + 0.5 * share))
    )
    if args.answer != 1:
        session.choose_answer(args.answer)
        answer = session.answer(session.prompts())
    mask = answer.mask
    if not mask.any():
        raise PromptError("The model finds nothing there; move the point or draw a box.")
    if answer.may_be_too_large(prompts, volume.spacing_mm):
        remarks.append(TOO_LARGE)
    name = args.name or terminology.name
    segment = terminology.segment(name, mask)
    segmentation = Segmentation(volume, (segment,), algorithm_of(segmenter))
    facts = {
        "segment": name,
        "voxels": int(mask.sum()),
        "volume_ml": _volume_ml(int(mask.sum()), volume),
        "estimated_iou": None if answer.estimated_iou is None else round(answer.estimated_iou, 3),
        "expected_dice": None if answer.expected_dice is None else round(answer.expected_dice, 3),
        "quality": answer.quality,
        "remarks": remarks,
        "answer": answer.choice.number,
        "answers": answer.choice.count,
        "model": segmenter.name,
        "model_version": segmenter.version,
        "weights_sha256": segmenter.sha256,
        "device": segmenter.device,
        "output": args.output.name,
    }
    if args.check_here:
        facts["check_here"] = _places_of(session)
    return segmentation, facts


def _places_of(session: InteractiveSession) -> list[dict[str, Any]]:
    """Return the places to check in the mask as JSON values, the most uncertain first."""
    digits = digits_for(session.volume.spacing_mm, 2)
    return [
        {
            # Adding 0.0 turns -0.0 into 0.0.
            "point_ras": [round(v, digits) + 0.0 for v in ras_to_lps(list(place.point_lps))],
            "error_share": round(place.error_share, 3),
            "doubt": round(place.error_share, 3),  # earlier name of `error_share`
            "expected_error_ml": (
                None if place.expected_error_ml is None else float(f"{place.expected_error_ml:.4g}")
            ),
        }
        for place in session.uncertain_regions()
    ]


def algorithm_of(segmenter: Segmenter) -> Any:
    """Return the algorithm that results of a model are attributed to."""
    from pumit.segmentation import Algorithm

    return Algorithm(f"PUMIT {segmenter.name}", segmenter.version, "SEMIAUTOMATIC")


def _write_companions(
    args: argparse.Namespace, segmentation: Segmentation, facts: dict[str, Any]
) -> None:
    from pumit.export.companions import ResultOrigin

    companions = companions_of(args)
    # Names and paths are left out: they may identify a patient.
    prompts = ("point", "negative", "voxel", "box", "frame", "answer", "find")
    others = ("modality", "anyway", "size", "channel")
    options = {key: getattr(args, key) for key in (*prompts, *others)}
    if args.prompts:
        from pumit.system.files import file_sha256

        options["prompts_sha256"] = file_sha256(args.prompts)
    companions.write(
        args.output,
        segmentation.volume,
        segmentation.segments,
        segmentation.algorithm,
        ResultOrigin(facts["weights_sha256"], facts["device"], options, args.image),
    )


def _found_in(
    volume: Volume, args: argparse.Namespace, step: Steps, structure: str = ""
) -> FoundStructure:
    """Find the structure that `--find` names; print remarks on standard error."""
    from pumit.errors import OtherModality, UnfamiliarScan, UnknownModality
    from pumit.models.consent import require_consent
    from pumit.structures.find import find_structure

    structure = structure or args.find

    told: list[str] = []

    def tell(of: Search | FoundStructure) -> None:
        sys.stderr.writelines(f"{remark}\n" for remark in of.remarks if remark not in told)
        told.extend(of.remarks)

    require_consent(args.find_model)
    try:
        found = find_structure(
            volume,
            structure,
            model=args.find_model,
            modality=args.modality,
            device=args.device,
            anyway=args.anyway,
            on_search=tell,
            watch=Watch(progress=lambda share: step(f"Looking for {structure}", 0.3 + 0.5 * share)),
        )
    except UnknownModality as error:
        raise UnknownModality(
            f"{error} Add --modality, or name a model with --find-model."
        ) from None
    except (UnfamiliarScan, OtherModality) as error:
        raise type(error)(
            f"{error} No result was written; add --anyway to search nevertheless."
        ) from None
    if not found.mask.any():
        raise PromptError(found.remarks[-1] if found.remarks else f"There is no {structure}.")
    tell(found)
    return found


def _meaning_of(found: FoundStructure) -> SegmentTerminology:
    """Return the terminology of the result; both sides together get the code of the pair."""
    from pumit.export.classes import class_terminology
    from pumit.structures.names import requested_structure

    named = requested_structure(found.name).meanings
    if len(found.found.classes) > 1 and len(named) == 1:
        return named[0]
    return class_terminology(found.found.classes)[0]


def _of_one_model(args: argparse.Namespace) -> list[str]:
    """Group the names of `--find` by model, so that each model runs once."""
    from pumit.models.card import installed_models
    from pumit.structures.names import parts_of, requested_structure
    from pumit.structures.search import candidates_for

    cards = [card for card in installed_models() if args.find_model in (None, card.name)]
    together: list[str] = []
    for name in parts_of(args.find):
        joined = f"{together[-1]}, {name}" if together else name
        if together and candidates_for(requested_structure(joined), cards):
            together[-1] = joined
        else:
            together.append(name)
    return together


def _find_image(args: argparse.Namespace, step: Steps) -> tuple[Segmentation, dict[str, Any]]:
    import numpy as np

    from pumit.export.classes import numbered_segments
    from pumit.export.terminology import concept_for
    from pumit.export.write import check_source
    from pumit.inference.loading import pick_device
    from pumit.models.checkpoint import read_recipe
    from pumit.models.index import find_model
    from pumit.segmentation import Algorithm, Segmentation

    step("Reading the scan", 0.05)
    volume, remarks = _read(args)
    check_source(args.output, volume)
    parts = [_found_in(volume, args, step, name) for name in _of_one_model(args)]
    found, models = parts[0], {part.model: part.version for part in parts}
    if len(models) > 1:
        found = replace(found, model=" and ".join(models), version=" and ".join(models.values()))
    numbered: dict[int, Segment] = {}
    before = 0  # classes of earlier parts; a label map has the same values in every scan
    for part in parts:
        numbered |= {before + n: s for n, s in numbered_segments(part.found).items()}
        before += len(part.found.classes)
    values, segments = zip(*numbered.items(), strict=True)
    if len(segments) == 1:
        (own,) = segments
        if args.terminology:
            own = concept_for(args.terminology).segment(own.name, own.mask)
        segments = (replace(own, name=args.name or own.name),)
    elif args.name or args.terminology:
        remarks.append("Several structures keep their own names and terminology.")
    sys.stderr.writelines(f"{remark}\n" for remark in remarks)
    algorithm = Algorithm(f"PUMIT {found.model}", found.version, "AUTOMATIC")
    voxels = int(np.logical_or.reduce([part.mask for part in parts]).sum())
    facts: dict[str, Any] = {
        "segment": ", ".join(segment.name for segment in segments),
        "voxels": voxels,
        "volume_ml": _volume_ml(voxels, volume),
        "estimated_iou": None,
        "model": found.model,
        "model_version": found.version,
        "weights_sha256": " and ".join(read_recipe(find_model(model))[1] for model in models),
        "device": str(pick_device(args.device)),
        "licence": found.licence,
        "remarks": list(dict.fromkeys([*remarks, *(r for part in parts for r in part.remarks)])),
        "output": args.output.name,
    }
    return Segmentation(volume, segments, algorithm, values), facts


def _volume_ml(voxels: int, volume: Volume) -> float | None:
    """Return the volume of some voxels, mL, to seven digits; None in a 2D image."""
    if volume.is_planar:
        return None
    return float(f"{voxels * math.prod(volume.spacing_mm) / 1000:.7g}")


def run(args: argparse.Namespace) -> int:
    """Run `pumit segment`."""
    from pumit.export.write import write_segmentation

    with progress_bar(quiet=args.json) as step:
        segmentation, facts = _segment_image(args, step)
        step("Writing", 0.95)
        write_segmentation(segmentation, args.output)
        _write_companions(args, segmentation, facts)
        if args.picture:
            from pumit.report.picture import write_picture

            write_picture(
                segmentation.volume,
                segmentation.segments,
                args.picture,
                prompts=prompts_from(args, segmentation.volume),
                title=facts["segment"],
            )
    if args.json:
        print(json.dumps(facts))
    else:
        ml = facts["volume_ml"]
        size = f"{facts['voxels']} pixels" if ml is None else volume_text(ml)
        trust = "not rated" if "quality" in facts else f"found by {facts['model']}"
        if facts.get("quality"):
            trust = f"{facts['quality']}, expected Dice {facts['expected_dice']:.2f}"
        if facts.get("answers", 1) > 1:
            trust += f", answer {facts['answer']} of {facts['answers']}"
        print(f"{facts['segment']}: {size}, {trust} -> {args.output}")
        if "quality" in facts:  # an answer to prompts; other remarks were told before
            sys.stderr.writelines(f"{remark}\n" for remark in facts["remarks"])
        for place in facts.get("check_here", []):
            position = ",".join(f"{v:g}" for v in place["point_ras"])
            print(f"check {position}: {place['error_share']:.0%} of the voxels around may be wrong")
    return 0
