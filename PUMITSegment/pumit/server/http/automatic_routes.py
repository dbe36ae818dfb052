"""Routes for automatic segmentation, search by name and reconstruction of a session's volume."""

from typing import Any

from fastapi import APIRouter, Request, Response

from pumit.export.classes import class_terminology
from pumit.export.terminology import serialize_terminology
from pumit.inference.interactive.session import InteractiveSession
from pumit.segmentation import ClassLabel, LabelMap
from pumit.server.http.job_answer import answer_codec, job_answer, streamed
from pumit.server.http.lease_routes import ActiveLease, ShownScan, State
from pumit.server.http.schemas import AutomaticIn, FindIn, ReconstructIn
from pumit.server.sessions.fair_queue import Job
from pumit.wire import protocol
from pumit.wire.arrays import Array, Codec, pack_bundle
from pumit.wire.prompt_answer import bounding_box

router = APIRouter()

_BUNDLE = streamed("a bundle: JSON and arrays, as `pumit.wire.arrays` has them")


@router.post(protocol.PATH_SEGMENT_AUTOMATICALLY, **_BUNDLE)
async def segment_automatically(
    request: Request, state: State, lease: ActiveLease, scan_id: ShownScan, body: AutomaticIn
) -> Response:
    """Label the session's volume, or a region of it, with a model of `/capabilities`.

    The array `labels` covers the half-open box `bbox` of the volume's grid. If nothing was found,
    `bbox` is null and `labels` is missing. If the model's classes overlap, an array `regions`
    covers the same box: bit i - 1 of a voxel says whether it belongs to class i, and `labels` has
    the last of these classes. `remark` warns if the scan may not suit the model.
    """
    codec = answer_codec(request, "lz4")

    def work(session: InteractiveSession, job: Job) -> bytes:
        answer = state.engine.segment_automatically(
            session, body.model, roi_corners_lps=body.roi_corners_lps, watch=job.watch
        )
        version = state.engine.version_of(body.model)
        return pack_labels(answer, {"model": body.model, "version": version}, codec)

    return await job_answer(request, state, lease, protocol.AUTOMATIC_JOB, work)


@router.post(protocol.PATH_FIND, **_BUNDLE)
async def find(
    request: Request, state: State, lease: ActiveLease, scan_id: ShownScan, body: FindIn
) -> Response:
    """Find a structure of the session's volume by name.

    The answer is that of `segment_automatically`, with `remarks` to read before trusting the mask
    and the model's `licence`. The request is refused if no model knows the structure (the nearest
    names are given), or if the models were trained on another modality.
    """
    codec = answer_codec(request, "lz4")

    def work(session: InteractiveSession, job: Job) -> bytes:
        search = state.engine.plan_search(
            session, body.structure, model=body.model, modality=body.modality, anyway=body.anyway
        )
        card = search.candidate.card
        meta: dict[str, Any] = {"structure": search.requested.text, "model": card.name}
        meta |= {"version": card.version, "licence": card.licence}
        if body.only_check:
            return pack_bundle({**meta, "remarks": list(search.remarks)}, {})
        answer = state.engine.run_search(
            session, search, roi_corners_lps=body.roi_corners_lps, watch=job.watch
        )
        return pack_labels(answer.found, {**meta, "remarks": list(answer.remarks)}, codec)

    return await job_answer(request, state, lease, protocol.AUTOMATIC_JOB, work)


@router.post(protocol.PATH_RECONSTRUCT, **_BUNDLE)
async def reconstruct(
    request: Request, state: State, lease: ActiveLease, scan_id: ShownScan, body: ReconstructIn
) -> Response:
    """Encode and decode the session's volume with a tokenizer.

    The arrays are `image` and `difference` on the volume's grid, `shares` of the tokens and, if
    the tokenizer has them, `usual_shares`. `familiarity` is a score with its parts, or null.
    """
    codec = answer_codec(request, "lz4")

    def work(session: InteractiveSession, job: Job) -> bytes:
        answer = state.engine.reconstruct(session, body.model, watch=job.watch)
        meta = {
            "psnr_db": answer.psnr_db,
            "ssim": answer.ssim,
            "mean_entropy": answer.use.mean_entropy,
            "sentence": answer.sentence,
            "familiarity": None if answer.familiarity is None else answer.familiarity.as_json(),
        }
        arrays: dict[str, Array] = {
            "image": answer.image,
            "difference": answer.difference,
            "shares": answer.use.shares,
        }
        if answer.usual_shares is not None:
            arrays["usual_shares"] = answer.usual_shares
        return pack_bundle(meta, arrays, codec=codec)

    return await job_answer(request, state, lease, protocol.RECONSTRUCTION_JOB, work)


def pack_labels(answer: LabelMap, facts: dict[str, Any], codec: Codec) -> bytes:
    """Pack facts, labels and regions, cropped to the labels' bounding box."""
    box = bounding_box(answer.labels > 0)
    meta = {
        **facts,
        "shape": list(answer.labels.shape),
        "bbox": box,
        "classes": describe(answer.classes),
        "remark": answer.remark,
    }
    if box is None:
        return pack_bundle(meta, {})
    crop = tuple(slice(start, stop) for start, stop in box)
    arrays: dict[str, Array] = {"labels": answer.labels[crop]}
    if answer.regions is not None:
        arrays["regions"] = answer.regions[crop]
    return pack_bundle(meta, arrays, codec=codec)


def describe(classes: tuple[ClassLabel, ...]) -> list[dict[str, Any]]:
    """Return name, Slicer terminology entry and colour of each class, in label order."""
    return [
        {
            "name": label.name,
            "terminology": serialize_terminology(meaning),
            "color_rgb": list(meaning.color_rgb),
        }
        for label, meaning in zip(classes, class_terminology(classes), strict=True)
    ]
