"""Structures found by name on a server, requested through a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pumit.client.remote_models import AutomaticAnswer, Corners, ModelMethods, unpack_labels
from pumit.errors import ServiceError
from pumit.system.watch import UNWATCHED, Watch
from pumit.wire import protocol
from pumit.wire.bundle import unpack_bundle

# The facts of a check are a few sentences.
_MOST_FACT_BYTES = 1 << 20


@dataclass(frozen=True)
class SearchFacts:
    """The model that segments a structure, with remarks to read before its answer is trusted.

    Attributes:
        remarks: Sentences, such as that the scan looks odd.
    """

    structure: str
    model: str
    version: str
    licence: str
    remarks: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class StructureAnswer(AutomaticAnswer):
    """Answer to a search for a structure: one class, or each class of everything."""

    facts: SearchFacts


class StructureMethods(ModelMethods):
    """Requests of a remote session to other models, also for structures by their names."""

    def check_structure(
        self,
        structure: str,
        *,
        model: str | None = None,
        modality: str = "",
        anyway: bool = False,
        watch: Watch = UNWATCHED,
    ) -> SearchFacts:
        """Return the model that would segment a structure, before it runs.

        Arguments and errors are those of `find_structure`.
        """
        body: dict[str, Any] = {"structure": structure, "model": model, "modality": modality}
        body |= {"anyway": anyway, "only_check": True}
        meta, _ = unpack_bundle(
            self._request_search(body, Watch(watch.cancelled)), max_bytes=_MOST_FACT_BYTES
        )
        return _facts(meta)

    def find_structure(
        self,
        structure: str,
        *,
        model: str | None = None,
        modality: str = "",
        roi_corners_lps: Corners | None = None,
        anyway: bool = False,
        watch: Watch = UNWATCHED,
    ) -> StructureAnswer:
        """Find a structure of the volume by its name.

        Args:
            structure: A name (`left kidney`), a group (`kidneys`), a code, Slicer's terminology
                entry, or `everything` that the model knows.
            model: Name of an automatic model; the best that knows it where None.
            modality: Modality of the scan, as DICOM writes it; empty where unknown.
            roi_corners_lps: Eight corners of a region to look in, LPS mm.
            anyway: Whether to check nothing, and run a model of another modality too.

        Raises:
            Cancelled: If it was stopped; the session stays usable.
            ConsentNeeded: If only models know it to whose licence no one has agreed there.
            StructureError: If no model knows it, or may look for it in this scan.
            ServiceError: If the server is gone.
        """
        corners = None if roi_corners_lps is None else np.asarray(roi_corners_lps).tolist()
        body = {
            "structure": structure,
            "model": model,
            "modality": modality,
            "roi_corners_lps": corners,
            "anyway": anyway,
        }
        content = self._request_search(body, watch)
        meta, found = unpack_labels(content, self.volume.shape)
        facts = _facts(meta)
        return StructureAnswer(found, facts.model, facts.version, facts)

    def _request_search(self, body: dict[str, Any], watch: Watch) -> bytes:
        return self._run_job(protocol.PATH_FIND, body, job=protocol.AUTOMATIC_JOB, watch=watch)


def _facts(meta: dict[str, Any]) -> SearchFacts:
    try:
        structure, model, version, licence = (
            str(meta[key]) for key in ("structure", "model", "version", "licence")
        )
        remarks = tuple(str(text) for text in meta["remarks"])
        return SearchFacts(structure, model, version, licence, remarks)
    except (KeyError, TypeError) as error:
        raise ServiceError(f"The server's answer cannot be read: {error}.") from None
