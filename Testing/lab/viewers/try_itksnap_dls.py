"""Send ITK-SNAP's requests to its published server and to PUMIT, and compare the answers.

Run by hand; ITK-SNAP itself is not needed, and was never run with PUMIT:

    python -m venv dls && dls/bin/pip install itksnap-dls
    dls/bin/python -m itksnap_dls --mock-models --host 127.0.0.1 --port 8931 &
    pumit serve --itksnap --port 8932 &
    python Testing/lab/viewers/try_itksnap_dls.py http://127.0.0.1:8931 http://127.0.0.1:8932

With `--mock-models` the published server paints balls, so the masks differ; status, keys, sizes and
types must be equal. Prints each request and exits with the number of differences.
"""

import argparse
import base64
import gzip
import json
import sys
from typing import Any

import numpy as np
import requests

SHAPE = (24, 48, 56)


def scan() -> np.ndarray:
    """Return a bright ball in noise, (D, H, W)."""
    d, h, w = np.ogrid[: SHAPE[0], : SHAPE[1], : SHAPE[2]]
    ball = (d - 12) ** 2 + (h - 24) ** 2 + (w - 30) ** 2 < 64
    return (100 * ball + np.random.default_rng(0).normal(0, 5, SHAPE)).astype(np.float32)


def form(array: np.ndarray) -> dict[str, Any]:
    """Encode an image as ITK-SNAP does: gzip of floats, and its size."""
    facts = {"dimensions": list(array.shape[::-1]), "components_per_pixel": 1}
    packed = gzip.compress(array.astype("<f4").tobytes())
    return {
        "files": {"file": ("image.nii.gz", packed, "application/octet-stream")},
        "data": {"metadata": json.dumps(facts)},
    }


def shape_of(answer: requests.Response) -> Any:
    """Return the parts of an answer that must be the same for both servers."""
    body = answer.json()
    found: dict[str, Any] = {"status": answer.status_code, "keys": sorted(body)}
    if "result" in body:
        raw = gzip.decompress(base64.b64decode(body["result"]))
        found["bytes"] = len(raw)
        found["values"] = sorted(set(np.frombuffer(raw, np.int8).tolist()) | {0, 1})
    if "models" in body:
        found["model keys"] = sorted(body["models"][0])
    return found


def voxels_of(answer: requests.Response) -> int:
    """Return the number of voxels in a mask."""
    raw = gzip.decompress(base64.b64decode(answer.json()["result"]))
    return int(np.frombuffer(raw, np.int8).sum())


def requests_of(url: str) -> list[tuple[str, Any, int | None]]:
    """Send all requests; return name, form of the answer and mask size of each."""
    done: list[tuple[str, Any, int | None]] = []

    def ask(name: str, method: str, path: str, **body: Any) -> requests.Response:
        answer = requests.request(method, f"{url}/{path}", timeout=300, **body)
        size = voxels_of(answer) if answer.ok and "result" in answer.json() else None
        done.append((name, shape_of(answer), size))
        return answer

    stroke = np.zeros(SHAPE, np.float32)
    stroke[12, 22:27, 26:35] = 1
    for prefix in ("", "v2/"):
        ask("status", "GET", "status")
        ask("models", "GET", "v2/models")
        model = ""
        if prefix:
            model = "/" + requests.get(f"{url}/v2/models", timeout=60).json()["models"][0]["id"]
        started = ask(f"{prefix}start_session", "GET", f"{prefix}start_session{model}")
        session = started.json()["session_id"]
        upload = f"{prefix}upload_raw/{session}?filename=upload.nii.gz"
        ask(f"{prefix}upload_raw", "POST", upload, **form(scan()))
        place = "point=30&point=24&point=12" if prefix else "x=30&y=24&z=12"
        click = f"{prefix}process_point_interaction/{session}?{place}&foreground=true"
        ask(f"{prefix}point", "GET", click)
        ask(f"{prefix}point outside", "GET", click.replace("30", "50").replace("true", "false"))
        ask(f"{prefix}reset", "GET", f"{prefix}reset_interactions/{session}")
        for kind in ("scribble", "lasso"):
            path = f"process_{kind}_interaction/{session}?foreground=true"
            ask(kind, "POST", path, **form(stroke))
        ask(f"{prefix}end_session", "GET", f"{prefix}end_session/{session}")
    return done


def main(theirs: str, ours: str) -> int:
    """Print each request with its outcome; return the number of differences."""
    wrong = 0
    for (name, expected, size), (_, found, own) in zip(
        requests_of(theirs), requests_of(ours), strict=True
    ):
        is_same = expected == found
        wrong += not is_same
        words = "same" if is_same else f"DIFFERENT: {expected} but {found}"
        sizes = "" if size is None else f" ({size} voxels there, {own} here)"
        print(f"{name}: {words}{sizes}")
    print(f"{wrong} differences")
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("theirs", help="address of the published server")
    parser.add_argument("ours", help="address of `pumit serve --itksnap`")
    given = parser.parse_args()
    sys.exit(main(given.theirs, given.ours))
