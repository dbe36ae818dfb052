"""`pumit view`: show a scan in the browser, served from this machine."""

from __future__ import annotations

import argparse
import contextlib
import html
import os
import secrets
import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pumit.volume import Volume

_WEEK_S = 7 * 24 * 3600.0
_HANDOVER = """<!doctype html><meta charset="utf-8"><title>PUMIT</title>
<form method="post" action="{url}"><input type="hidden" name="token" value="{token}">
<button>Open PUMIT</button></form><script>document.forms[0].submit()</script>
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit view`."""
    parser.add_argument(
        "image",
        type=Path,
        nargs="?",
        help="NIfTI, NRRD, MHA, DICOM folder or zip, PNG, JPEG; without it, a generated CT",
    )
    parser.add_argument("--series", help="SeriesInstanceUID, if the folder holds several series")
    parser.add_argument("--model", default="default", help="model name or checkpoint file")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps")
    parser.add_argument("--port", type=int, default=0, help="port; 0 takes a free one")
    parser.add_argument(
        "--no-browser", action="store_true", help="do not open a browser; print URL and access code"
    )


def run(args: argparse.Namespace) -> int:
    """Run `pumit view` until it is stopped."""
    from pumit.models.consent import require_consent
    from pumit.preprocessing.channels import is_colour
    from pumit.server.http.page_routes import PAGE
    from pumit.server.serve import ServeSettings, leave_no_files, serve
    from pumit.server.sessions.limits import Limits
    from pumit.volume import Volume

    require_consent(args.model)
    leave_no_files()
    token = secrets.token_urlsafe(32)
    settings = ServeSettings(
        token,
        port=args.port,
        model=args.model,
        device=args.device,
        keeps_graphs=True,
        # Browsers suspend hidden tabs: a page left open overnight must keep its session.
        limits=Limits(idle_timeout_s=_WEEK_S, liveness_timeout_s=_WEEK_S, sleep_after_s=_WEEK_S),
    )
    with tempfile.TemporaryDirectory(prefix="pumit-view-") as folder:
        private = Path(folder)  # readable by this user only, removed at the end
        if args.image is None:
            scan = _generated_scan(private / "scan")
        else:
            scan = Volume.read(args.image, series=args.series)
        if scan.channels > 1 and not is_colour(scan):
            what = f"The scan has {scan.channels} channels or time points"
            sys.stderr.write(f"{what}; the page shows and segments the first.\n")

        def announce(ready: dict[str, object]) -> None:
            url = f"{ready['url']}{PAGE}"
            print(f"PUMIT is open at {url} (Ctrl+C ends it)")
            print(f"If no browser opened, go to that address and paste this access code: {token}")
            sys.stdout.flush()
            if not args.no_browser and _has_browser():
                webbrowser.open(_write_handover(private / "open.html", url, token).as_uri())

        # Ctrl+C is the usual way to end it.
        with contextlib.suppress(KeyboardInterrupt):
            serve(settings, announce=announce, scan=scan)
    return 0


def _generated_scan(folder: Path) -> Volume:
    """Write the scan of `pumit sample scan` into a new folder and read it back as DICOM."""
    from pumit.export.dicom_series import write_dicom_series
    from pumit.training.synthesis.phantom import torso_phantom
    from pumit.volume import Volume

    folder.mkdir()
    write_dicom_series(torso_phantom().volume, folder, patient_id="PUMIT-SAMPLE")
    return Volume.read(folder)


def _write_handover(path: Path, url: str, token: str) -> Path:
    """Write a page that posts the token to the server as a form, to keep it out of the URL.

    A browser's arguments are visible to all users of the machine, and its history keeps URLs.
    This file is readable by its user only.
    """
    text = _HANDOVER.format(url=html.escape(url), token=html.escape(token))
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
    return path


def _has_browser() -> bool:
    return not sys.platform.startswith("linux") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
