"""Make the screenshots of the browser page: `python scripts/draw_browser.py`.

Chromium clicks in the page of `pumit view`, on the generated scan.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright
from pumit.training.synthesis.phantom import torso_phantom

OUT = Path(__file__).resolve().parent.parent / "Resources" / "browser"
WEBGL = ("--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")
MILLISECONDS = 1600
WIDE, NARROW = {"width": 1000, "height": 640}, {"width": 390, "height": 844}


def enter(page: Page, url: str, code: str) -> None:
    """Open the page and enter the access code."""
    page.goto(url)
    page.locator("#code").fill(code)
    page.locator("#door button").click()
    page.locator("#status", has_text="Click inside").wait_for()


def show(page: Page, organ: str) -> tuple[float, float]:
    """Move the planes to an organ's centre; return its position on the page, in the axial view."""
    phantom = torso_phantom()
    ijk = phantom.volume.world_to_index(phantom.centre_lps(organ))[::-1].tolist()
    place: Any = page.evaluate(
        """(ijk) => {
          const frac = nv.volumes[0].permRAS.map((axis) => {
            const a = Math.abs(axis) - 1, n = scan.dims[a];
            return axis > 0 ? (ijk[a] + 0.5) / n : (n - 0.5 - ijk[a]) / n;
          });
          nv.scene.crosshairPos = frac;
          nv.drawScene();
          const tile = tiles()[0], view = byId("view").getBoundingClientRect();
          const unit = nv.gl.canvas.width / view.width;
          const [x, y] = pixelOf(tile, frac);
          return [view.left + x / unit, view.top + y / unit];
        }""",
        ijk,
    )
    return place[0], place[1]


def click(page: Page, organ: str) -> None:
    """Click in the centre of an organ and wait for its mask."""
    page.mouse.click(*show(page, organ))
    page.locator("#status", has_text=re.compile("mL")).wait_for(timeout=120_000)
    page.wait_for_timeout(300)


def rename(page: Page, name: str) -> None:
    """Name the newest segment."""
    page.get_by_label("Name of the segment").last.fill(name)
    page.keyboard.press("Tab")


def film(page: Page) -> list[Image.Image]:
    """Segment three organs with one click each, show them in 3D, and return the frames."""
    frames: list[Image.Image] = []

    def frame() -> None:
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        frames.append(picture.quantize(96, method=Image.Quantize.MEDIANCUT))

    frame()
    for number, organ in enumerate(("liver", "spleen", "left kidney")):
        if number:
            page.get_by_role("button", name="New segment").click()
        click(page, organ)
        rename(page, organ)
        frame()
    page.get_by_label("Show").select_option("3D")
    page.wait_for_timeout(300)
    frame()
    page.get_by_label("Show").select_option("Planes and 3D")
    return frames


def main() -> None:
    """Make both screenshots and the animation."""
    OUT.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pumit", "view", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = re.findall(r"http\S+", server.stdout.readline())[0]
        code = server.stdout.readline().rpartition(" ")[2].strip()
        try:
            with sync_playwright() as driver:
                chromium = shutil.which("chromium")
                browser = driver.chromium.launch(
                    executable_path=chromium, args=["--no-sandbox", *WEBGL]
                )
                page = browser.new_page(viewport=WIDE)
                enter(page, url, code)
                first, *rest = film(page)
                first.save(
                    OUT / "click.gif", save_all=True, append_images=rest, duration=MILLISECONDS,
                    loop=0, optimize=True,
                )  # fmt: skip
                page.set_viewport_size({"width": 1280, "height": 800})
                show(page, "liver")
                page.screenshot(path=OUT / "page.png")
                small = browser.new_page(viewport=NARROW)
                enter(small, url, code)
                click(small, "liver")
                small.screenshot(path=OUT / "narrow.png")
                browser.close()
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
