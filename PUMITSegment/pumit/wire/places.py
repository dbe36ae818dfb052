"""Doubtful places on the wire: a JSON list."""

from __future__ import annotations

import json

from pumit.errors import PromptError, ServiceError
from pumit.prompts import PointPrompt
from pumit.segmentation import DoubtfulPlace


def unpack_places(body: bytes) -> list[DoubtfulPlace]:
    """Read what `PATH_DOUBTFUL_PLACES` answers, a `PlacesOut` of the schemas.

    Raises:
        ServiceError: If it cannot be read.
    """
    try:
        return [
            DoubtfulPlace(
                # A point that is checked: three finite numbers.
                PointPrompt(tuple(row["point_lps"])).point_lps,
                float(row["doubt"]),
                float(row["reach_mm"]),
                None if row["expected_error_ml"] is None else float(row["expected_error_ml"]),
            )
            for row in json.loads(body)["places"]
        ]
    except (KeyError, TypeError, ValueError, PromptError) as error:
        raise ServiceError(f"The server's answer cannot be read: {error}.") from None
