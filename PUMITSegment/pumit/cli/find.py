"""`pumit segment --find`: a structure by its name, from the model that has it as a class."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from pumit.cli.shared.progress import Steps
from pumit.errors import PromptError

if TYPE_CHECKING:
    from pumit.export.terminology import SegmentTerminology
    from pumit.segmentation import Segmentation
    from pumit.structures.find import FoundStructure, Search
    from pumit.volume import Volume


def add_find_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what finds a structure by its name."""
    parser.add_argument(
        "--find",
        metavar="NAME",
        help="segment a structure by its name (left kidney, kidneys, SCT:10200004), or everything; "
        "points and boxes given with it correct the result",
    )
    parser.add_argument(
        "--find-model",
        metavar="M",
        help="automatic model for --find; default: the best one that knows the structure",
    )
    parser.add_argument(
        "--anyway", action="store_true", help="also use a model trained on another modality"
    )


def find_in(volume: Volume, args: argparse.Namespace, step: Steps) -> FoundStructure:
    """Find the structure that `--find` names; prints model and remarks on standard error first.

    Raises:
        PromptError: If the model sees none.
    """
    from pumit.models.consent import require_consent
    from pumit.structures.find import find_structure

    def report(search: Search) -> None:
        for remark in search.remarks:
            sys.stderr.write(f"{search.candidate.card.name}: {remark}\n")

    require_consent(args.find_model)
    found = find_structure(
        volume,
        args.find,
        model=args.find_model,
        device=args.device,
        anyway=args.anyway,
        on_search=report,
        progress=lambda share: step(f"Looking for {args.find}", 0.3 + 0.5 * share),
    )
    if not found.mask.any():
        raise PromptError(found.remarks[-1] if found.remarks else f"There is no {args.find}.")
    return found


def meaning_of(found: FoundStructure) -> SegmentTerminology:
    """What was found, in codes."""
    from pumit.export.classes import class_terminology

    return class_terminology(found.found.classes)[0]


def find_image(args: argparse.Namespace, step: Steps) -> tuple[Segmentation, dict[str, Any]]:
    """Read and find, without prompts; returns the segmentation and figures about it."""
    import numpy as np

    from pumit.export.classes import segments_of
    from pumit.export.terminology import concept_for
    from pumit.inference.loading import pick_device
    from pumit.models.checkpoint import read_recipe
    from pumit.models.index import find_model
    from pumit.segmentation import Algorithm, Segmentation
    from pumit.volume import Volume

    step("Reading the scan", 0.05)
    volume = Volume.read(args.image, series=args.series)
    found = find_in(volume, args, step)
    segments = segments_of(found.found)
    if len(segments) == 1:
        meaning = concept_for(args.terminology) if args.terminology else meaning_of(found)
        segments = (meaning.segment(args.name or segments[0].name, segments[0].mask),)
    algorithm = Algorithm(f"PUMIT {found.model}", found.version, "AUTOMATIC")
    voxels = int(found.mask.sum())
    ml = round(voxels * float(np.prod(volume.spacing_mm)) / 1000, 3)
    facts: dict[str, Any] = {
        "segment": ", ".join(segment.name for segment in segments),
        "voxels": voxels,
        "volume_ml": None if volume.is_planar else ml,
        "estimated_iou": None,
        "model": found.model,
        "model_version": found.version,
        "weights_sha256": read_recipe(find_model(args.find_model or found.model))[1],
        "device": str(pick_device(args.device)),
        "licence": found.licence,
        "remarks": list(found.remarks),
        "output": args.output.name,
    }
    return Segmentation(volume, segments, algorithm), facts
