"""`pumit segment --find`: segment structures by name with automatic models."""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pumit.cli.shared.progress import Steps
from pumit.errors import PromptError
from pumit.system.watch import Watch

if TYPE_CHECKING:
    from pumit.export.terminology import SegmentTerminology
    from pumit.segmentation import Segmentation
    from pumit.structures.find import FoundStructure, Search
    from pumit.volume import Volume


def add_find_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `--find` and its options."""
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


def find_in(
    volume: Volume, args: argparse.Namespace, step: Steps, structure: str = ""
) -> FoundStructure:
    """Find the structure that `--find` names; print remarks on standard error.

    Args:
        structure: One of several structures in `--find`; empty for all of `--find`.

    Raises:
        PromptError: If the model does not find it.
    """
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


def meaning_of(found: FoundStructure) -> SegmentTerminology:
    """Return the terminology of the result; both sides together get the code of the pair."""
    from pumit.export.classes import class_terminology
    from pumit.structures.names import requested_structure

    named = requested_structure(found.name).meanings
    if len(found.found.classes) > 1 and len(named) == 1:
        return named[0]
    return class_terminology(found.found.classes)[0]


def of_one_model(args: argparse.Namespace) -> list[str]:
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


def find_image(args: argparse.Namespace, step: Steps) -> tuple[Segmentation, dict[str, Any]]:
    """Read the scan and find the structures; return the segmentation and facts about it."""
    import numpy as np

    from pumit.export.classes import segments_of
    from pumit.export.terminology import concept_for
    from pumit.export.write import check_source
    from pumit.inference.loading import pick_device
    from pumit.models.checkpoint import read_recipe
    from pumit.models.index import find_model
    from pumit.segmentation import Algorithm, Segmentation
    from pumit.volume import Volume

    step("Reading the scan", 0.05)
    volume = Volume.read(args.image, series=args.series)
    check_source(args.output, volume)
    parts = [find_in(volume, args, step, name) for name in of_one_model(args)]
    found = parts[0]
    if len({part.model for part in parts}) > 1:
        found = replace(found, model=" and ".join(dict.fromkeys(part.model for part in parts)))
    segments = tuple(segment for part in parts for segment in segments_of(part.found))
    if len(segments) == 1:
        meaning = concept_for(args.terminology) if args.terminology else meaning_of(found)
        segments = (meaning.segment(args.name or segments[0].name, segments[0].mask),)
    algorithm = Algorithm(f"PUMIT {found.model}", found.version, "AUTOMATIC")
    voxels = int(np.logical_or.reduce([part.mask for part in parts]).sum())
    facts: dict[str, Any] = {
        "segment": ", ".join(segment.name for segment in segments),
        "voxels": voxels,
        "volume_ml": volume_ml_of(voxels, volume),
        "estimated_iou": None,
        "model": found.model,
        "model_version": found.version,
        "weights_sha256": read_recipe(find_model(args.find_model or found.model))[1],
        "device": str(pick_device(args.device)),
        "licence": found.licence,
        "remarks": list(dict.fromkeys(remark for part in parts for remark in part.remarks)),
        "output": args.output.name,
    }
    return Segmentation(volume, segments, algorithm), facts


def volume_ml_of(voxels: int, volume: Volume) -> float | None:
    """Return the volume of some voxels, mL, to seven digits; None in a 2D image."""
    if volume.is_planar:
        return None
    return float(f"{voxels * math.prod(volume.spacing_mm) / 1000:.7g}")
