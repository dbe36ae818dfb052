"""The page in a browser without a screen: real clicks, and what is seen after them."""

import io
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from loopback_server import TOKEN, Running
from PIL import Image
from placed_files import placed_files
from pumit.export.dicom_series import write_dicom_series
from pumit.export.nifti import nifti_bytes
from pumit.io.labels.label_file import read_label_file
from pumit.prompts import AnswerPrompt, BoxPrompt, PointPrompt, ScribblePrompt
from pumit.system.wording import volume_text
from pumit.volume import Volume
from scipy.spatial.transform import Rotation

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("Chromium is not installed", allow_module_level=True)

pytestmark = pytest.mark.slow
# WebGL without a graphics card.
WEBGL = ("--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")
SPOT = (10, 28, 12)  # on the middle slice, (d, h, w)
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
# Laid out as a wide one; drawing takes a third of the time without a graphics card.
SMALL = {"width": 760, "height": 480}
TILT = Rotation.from_euler("zyx", [12, -9, 7], degrees=True).as_matrix()
# Columns: where W, H and D point to, LPS.
DIRECTIONS = {
    "axial": np.eye(3),
    "sagittal": np.array([[0, 0, 1], [1, 0, 0], [0, -1, 0]]),
    "left-handed coronal": np.array([[-1, 0, 0], [0, 0, 1], [0, -1, 0]]) * (1, 1, -1),
}


def spotted(direction: np.ndarray) -> Volume:
    """An oblique, anisotropic scan with one bright spot."""
    voxels = np.random.default_rng(0).normal(size=(21, 44, 36)) * 20 + 100
    d, h, w = SPOT
    voxels[d - 1 : d + 2, h - 1 : h + 2, w - 1 : w + 2] = 1000
    return Volume(voxels.astype(np.int16), (3.0, 0.8, 1.1), (-20.0, 7.0, 100.0), TILT @ direction)


@pytest.fixture(scope="module")
def browser() -> Iterator:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *WEBGL])
        yield found
        found.close()


class Tab:
    """The page in one tab, with all that it asked for and complained about."""

    def __init__(self, browser, server: Running, size=SMALL) -> None:
        self.context = browser.new_context(viewport=size)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.addresses: list[str] = []
        self.page.on("console", lambda m: self.complaints.append(m.text))
        self.page.on("pageerror", lambda e: self.complaints.append(str(e)))
        self.page.on("request", lambda r: self.addresses.append(r.url))
        self.visit(server)

    def visit(self, server: Running) -> None:
        self.server = server
        self.page.goto(f"{server.url}/view/")

    def enter(self, code: str = TOKEN) -> None:
        self.page.get_by_label("Access code").last.fill(code)
        self.page.get_by_role("button", name="Open", exact=True).click()

    def says(self, pattern: str) -> str:
        found = self.page.locator("#status", has_text=re.compile(pattern))
        found.wait_for(timeout=20_000)
        return found.inner_text()

    def tool(self, name: str) -> None:
        self.page.locator("#tools label", has_text=re.compile(rf"^{name} \S+( I)?$")).click()

    def seen(self) -> np.ndarray:
        """Colours of the screen, (height, width, 3)."""
        return np.asarray(Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")).astype(int)

    def tiles(self) -> dict[int, tuple[float, float, float, float]]:
        """Left, top, right and bottom of the planes on the screen, by NiiVue's number."""
        places = self.page.evaluate(
            "() => { const r = byId('view').getBoundingClientRect();"
            "const unit = nv.gl.canvas.width / r.width;"
            "return nv.screenSlices.map((s) => [s.axCorSag,"
            "...s.leftTopWidthHeight.map((v) => v / unit), r.left, r.top]); }"
        )
        return {
            n: (left + x, top + y, left + x + w, top + y + h)
            for n, x, y, w, h, left, top in places
            if n < 3
        }

    def brightest(self, plane: int) -> tuple[float, float]:
        """Middle of what is white in a plane; its lines and letters are not."""
        left, top, right, bottom = self.tiles()[plane]
        part = self.seen()[round(top) : round(bottom), round(left) : round(right)]
        y, x = np.nonzero(part.min(-1) > 235)
        assert len(y), "no spot is seen"
        return left + float(np.median(x)) + 0.5, top + float(np.median(y)) + 0.5

    def click_spot(self) -> None:
        self.page.mouse.click(*self.brightest(0))
        self.says("mL")

    def hold(self, path: str) -> list:
        """Return a list that gets the next request to a path, which waits."""
        held: list = []
        self.page.route(f"**{path}", lambda route: route.fallback() if held else held.append(route))
        return held

    def answer(self, path: str, **answer) -> None:
        """Answer the next request to a path without the server."""
        self.page.route(f"**{path}", lambda route: route.fulfill(**answer), times=1)

    def wait_for(self, held: list) -> None:
        for _ in range(3000):
            if held:
                return
            self.page.wait_for_timeout(20)
        pytest.fail("the request was not made")

    def expire(self) -> None:
        for lease in self.server.state.leases.open_leases():
            self.server.state.leases.release(lease.token)

    def claims(self) -> int:
        return sum(url.endswith("/claim") for url in self.addresses)

    def prompts(self) -> tuple:
        return self.server.engine.sessions[-1].answered[-1][1]


@pytest.fixture
def opened(browser, serving) -> Iterator:
    tabs: list[Tab] = []

    def open_tab(scan: Volume | None, size=SMALL) -> Tab:
        tabs.append(Tab(browser, serving(scan), size))
        tabs[-1].enter()
        tabs[-1].says("Click inside" if scan else "of your own")
        return tabs[-1]

    yield open_tab
    for tab in tabs:
        tab.context.close()


@pytest.fixture
def tab(opened) -> Tab:
    """The page with the axial scan."""
    return opened(spotted(DIRECTIONS["axial"]))


@pytest.fixture
def other(tmp_path) -> tuple[np.ndarray, Path]:
    """Voxels and file of a scan like the shown one; its spot is at the same place."""
    shown = spotted(DIRECTIONS["axial"])
    voxels = shown.array[::-1].copy()
    (tmp_path / "other.nii").write_bytes(nifti_bytes(voxels, shown))
    return voxels, tmp_path / "other.nii"


def nearest(volume: Volume, point_lps) -> np.ndarray:
    return volume.world_to_index(point_lps)


def test_a_click_is_where_the_spot_is_seen_in_every_plane(tab, serving):
    for name, direction in DIRECTIONS.items():
        volume = spotted(direction)
        if name != "axial":
            tab.visit(serving(volume))
            tab.enter()
            tab.says("Click inside")
        # The plane of the scan's own slices shows the spot; from there the others follow.
        depth = np.abs(volume.direction[:, 2]).argmax()  # L, P or S
        own = {0: 2, 1: 1, 2: 0}[int(depth)]
        for plane in (own, *({0, 1, 2} - {own})):
            tab.page.mouse.click(*tab.brightest(plane))
            tab.says("mL")
            point = tab.prompts()[-1]
            assert isinstance(point, PointPrompt)
            assert np.abs(nearest(volume, point.point_lps) - SPOT).max() < 1.01, (name, plane)
            # Undone, so that no mask covers the spot.
            tab.page.keyboard.press("Control+z")
            tab.says("Undone")
            tab.page.wait_for_timeout(100)
    assert tab.complaints == []


def test_a_mask_is_drawn_where_the_click_was_and_downloaded_as_it_is_seen(opened, tmp_path):
    (tmp_path / "scan").mkdir()
    write_dicom_series(spotted(DIRECTIONS["axial"]), tmp_path / "scan", patient_id="GENERATED")
    volume = Volume.read(tmp_path / "scan")
    tab = opened(volume)
    left, top, right, bottom = tab.tiles()[0]
    x, y = tab.brightest(0)
    # Column 12 of 36, and columns run towards the patient's left: the right is left.
    assert x < (left + right) / 2
    tab.page.mouse.click(x, y)
    tab.says("mL")
    seen = tab.seen()[round(top) : round(bottom), round(left) : round(right)]
    # Yellow, but for the lines: the stand-in paints five voxels in every direction.
    yellow = (seen[..., 0] - seen[..., 2] > 25) & (seen[..., 0] > seen[..., 1])
    rows, columns = np.nonzero(yellow)
    per_voxel = (right - left) / 36
    assert abs(left + columns.mean() - x) < per_voxel
    assert 3.5 * per_voxel < np.ptp(columns) < 6.5 * per_voxel
    assert abs(top + rows.mean() - y) < per_voxel * 0.8 / 1.1

    def green() -> int:
        """Pixels of the marks, which are on their slice and not in 3D."""
        tab.page.wait_for_timeout(200)
        return int((np.abs(tab.seen() - (31, 157, 85)).max(-1) < 12).sum())

    assert green() > 100
    tab.page.get_by_label("Show").select_option("3D")
    assert green() == 0
    tab.page.get_by_label("Show").select_option("Axial")
    assert green() > 30
    tab.page.mouse.move(400, 400)
    tab.page.mouse.wheel(0, 100)
    assert green() == 0
    tab.page.get_by_label("Name of the segment").fill("liver")
    tab.page.keyboard.press("Tab")
    for ending in ("nii.gz", "seg.nrrd", "dcm"):
        with tab.page.expect_download() as download:
            tab.page.locator(f"[data-format='{ending}']").click()
        download.value.save_as(tmp_path / f"made.{ending}")
    session = tab.server.engine.sessions[-1]
    mask = session.answer(session.answered[-1][1]).mask
    labels = Volume.read(tmp_path / "made.nii.gz")
    assert np.array_equal(labels.array > 0, mask)
    assert np.allclose(labels.index_to_world(SPOT), volume.index_to_world(SPOT), atol=1e-3)
    assert b"SCT^10200004^Liver" in (tmp_path / "made.seg.nrrd").read_bytes()
    assert (tmp_path / "made.dcm").read_bytes()[128:132] == b"DICM"
    # Changes made during a download are not called saved.
    held = tab.hold("/export")
    with tab.page.expect_download():
        tab.page.locator("[data-format='nii.gz']").click()
        tab.wait_for(held)
        tab.page.mouse.click((left + right) / 2, (top + bottom) / 2)
        tab.says("mL")
        held[0].continue_()
    tab.says("Downloaded")
    assert not tab.page.evaluate("dispatchEvent(new Event('beforeunload', {cancelable: true}))")


def test_boxes_and_scribbles_are_drawn_and_buttons_undo_and_show_another_answer(tab):
    volume = tab.server.state.scan
    asked: list[str] = []
    tab.page.on("dialog", lambda d: (asked.append(d.type), d.accept()))
    x, y = tab.brightest(0)
    for tool, kind in (("Box", BoxPrompt), ("Scribble", ScribblePrompt), ("Scribble out", None)):
        tab.tool(tool)
        tab.page.mouse.move(x - 20, y - 16)
        tab.page.mouse.down()
        tab.page.mouse.move(x, y, steps=3)
        tab.page.mouse.move(x + 20, y + 16, steps=3)
        tab.page.mouse.up()
        tab.says("mL|nothing")
        prompt = tab.prompts()[-1]
        if kind is BoxPrompt:
            index = nearest(volume, prompt.corners_lps)
            assert np.abs(index.mean(0) - SPOT).max() < 0.6
            assert np.ptp(index[:, 0]) < 1e-3
            assert (np.ptp(index[:, 1:], axis=0) > 1).all()
        else:
            assert isinstance(prompt, ScribblePrompt)
            assert prompt.is_positive is (kind is not None)
            assert len(prompt.points_lps) >= 6
    assert [type(p) for p in tab.prompts()] == [BoxPrompt, ScribblePrompt, ScribblePrompt]
    # Unsaved segments warn before the tab closes.
    tab.page.reload()
    tab.says("Click inside")
    assert asked == ["beforeunload"]
    assert tab.page.evaluate("dispatchEvent(new Event('beforeunload', {cancelable: true}))")
    button = tab.page.get_by_role("button", name="Another answer")
    assert button.is_disabled()
    tab.page.mouse.click(*tab.brightest(0))
    tab.says("answer 1 of 3")
    button.click()
    tab.says("answer 2 of 3")
    assert tab.prompts()[-1] == AnswerPrompt(2)
    tab.page.get_by_role("button", name="Undo").click()
    tab.page.locator("#segments small", has_text="answer 1 of 3").wait_for()
    tab.page.get_by_role("button", name="Undo").click()
    tab.page.locator("[data-format='nii.gz']:disabled").wait_for()
    tab.page.get_by_role("button", name="Redo").click()
    tab.page.locator("#segments small", has_text="answer 1 of 3").wait_for()


def test_a_structure_is_found_by_name_corrected_and_not_put_on_the_next_scan(tab, other):
    volume = tab.server.state.scan
    tab.page.get_by_label("Find by name").fill("liver")
    tab.page.get_by_role("button", name="Find", exact=True).click()
    tab.says("liver found by organs")
    assert tab.page.get_by_label("Name of the segment").input_value() == "liver"
    tab.page.get_by_label("Find by name").fill("unicorn")
    tab.page.get_by_role("button", name="Find", exact=True).click()
    tab.page.locator("#problem", has_text="unicorn").wait_for()
    tab.tool("Outside")
    left, top, right, bottom = tab.tiles()[0]
    tab.page.mouse.click((left + right) / 2, (top + bottom) / 2)
    tab.says("mL")
    mask, point = tab.prompts()
    middle = np.median(volume.array)
    assert np.array_equal(mask.mask, (volume.array > middle) & (volume.array <= 2 * middle + 50))
    assert not point.is_positive
    # A search is stopped.
    search = tab.server.engine.segment_automatically
    tab.server.engine.segment_automatically = lambda session, model, **options: search(
        session, "slow", **options
    )
    tab.page.get_by_label("Find by name").fill("liver")
    find = tab.page.get_by_role("button", name="Find", exact=True)
    find.click()
    tab.says("Looking for")
    tab.page.wait_for_timeout(700)
    find.click()  # replaces the first search
    tab.page.wait_for_timeout(1500)
    assert tab.page.locator("#problem").is_hidden()
    tab.page.get_by_role("button", name="Stop").click()
    tab.page.get_by_text("The computation was cancelled.").wait_for()
    (lease,) = tab.server.state.leases.open_leases()
    while tab.server.is_predicting(lease.token):
        tab.page.wait_for_timeout(20)
    # Another scan is opened during a search.
    tab.server.engine.segment_automatically = search
    tab.page.on("dialog", lambda question: question.accept())  # segments are not saved
    found = tab.hold("/mask_prior")
    tab.page.get_by_role("button", name="Find", exact=True).click()
    tab.wait_for(found)
    tab.page.locator("#file").set_input_files(other[1])
    tab.says("Click inside")
    found[0].continue_()
    tab.page.get_by_text("Another scan was opened").wait_for()
    assert tab.page.get_by_label("Name of the segment").count() == 1
    assert tab.page.locator("[data-format='nii.gz']").is_disabled()


def everything_has_a_name_and_nothing_is_cut(tab, size) -> bool:
    unnamed = tab.page.evaluate(
        "() => [...document.querySelectorAll('button, input, select, [role]')].filter((e) =>"
        "!(e.textContent.trim() || e.labels?.length || e.ariaLabel || e.role === 'alert'"
        "|| e.role === 'status')).map((e) => e.outerHTML)"
    )
    assert unnamed == []
    cut = tab.page.evaluate(
        "() => [...document.querySelectorAll('button, label, legend, header *')].filter((e) =>"
        "e.offsetParent && e.scrollWidth > e.clientWidth + 1 && e.clientWidth).map((e) =>"
        "e.outerHTML)"
    )
    assert cut == []
    return tab.page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def test_all_can_be_done_with_the_keyboard_and_nothing_is_cut(opened):
    volume = spotted(DIRECTIONS["axial"])
    tab = opened(volume, NARROW)
    assert everything_has_a_name_and_nothing_is_cut(tab, NARROW)
    tab.page.locator("#stage").focus()
    tab.page.keyboard.press("PageUp")
    tab.says("slice 11")
    for _ in range(3):
        tab.page.keyboard.press("ArrowRight")
    where = re.findall(r"\d+", tab.says(r"Column \d+, row"))
    tab.page.keyboard.press("Enter")
    tab.says("mL")
    index = nearest(volume, tab.prompts()[-1].point_lps)
    assert np.abs(index[::-1] - [int(n) for n in where]).max() < 0.51
    for key, label in (
        *(("i", "Outside"), ("i", "Inside"), ("s", "Scribble S"), ("i", "Scribble out")),
        *(("i", "Scribble S"), ("Escape", "Look"), ("i", "Outside"), ("p", "Inside"), ("d", "Box")),
    ):
        tab.page.keyboard.press(key)
        assert tab.page.get_by_label(re.compile(f"^{label}")).is_checked(), key
    tab.page.keyboard.press("Enter")
    tab.says("First corner")
    tab.page.keyboard.press("Shift+ArrowUp")
    tab.page.keyboard.press("Shift+ArrowRight")
    tab.page.keyboard.press("Enter")
    tab.says("mL")
    assert isinstance(tab.prompts()[-1], BoxPrompt)
    # Segments are named, chosen and removed.
    tab.page.set_viewport_size(WIDE)
    assert everything_has_a_name_and_nothing_is_cut(tab, WIDE)
    tab.page.set_viewport_size(SMALL)
    for volume_ml in (1234.4, 12.345, 0.33, 1e-3, 9.96e-4, 1e-6, 8.5e-11):
        assert tab.page.evaluate(f"volumeText({volume_ml})") == volume_text(volume_ml)
    assert tab.page.evaluate("volumeText(1.2341e-8)") == "12,340 µm³"
    # A name is typed while an answer is on its way.
    held = tab.hold("/predict")
    tab.page.locator("#stage").focus()
    tab.page.keyboard.press("p")
    tab.page.keyboard.press("Enter")
    tab.wait_for(held)
    name = tab.page.get_by_label("Name of the segment")
    name.fill("")
    tab.page.keyboard.type("liv")
    held[0].continue_()
    tab.says("mL")
    tab.page.keyboard.type("er")
    tab.page.keyboard.press("Enter")
    tab.says("Named liver")
    assert name.input_value() == "liver"
    tab.page.get_by_role("button", name="New segment").click()
    tab.page.get_by_role("button", name="New segment").click()
    tab.page.get_by_label("Work on Segment 3").focus()
    tab.page.keyboard.press("ArrowUp")
    assert tab.page.get_by_label("Work on Segment 2").is_checked()
    tab.page.keyboard.press("ArrowUp")
    assert tab.page.get_by_label("Work on liver").is_checked()
    tab.page.get_by_label("Remove Segment 2").focus()
    tab.page.keyboard.press("Enter")
    tab.says("Segment 2 removed")
    assert tab.page.get_by_label("Work on liver").is_checked()
    tab.page.keyboard.press("ArrowDown")
    assert tab.page.get_by_label("Work on Segment 3").is_checked()


def test_the_token_is_asked_for_once_and_comes_into_no_address(browser, serving):
    tab = Tab(browser, serving(spotted(DIRECTIONS["axial"])))
    tab.enter("another-token-0123456789")
    tab.page.locator("#wrong", has_text="does not accept").wait_for()
    tab.enter()
    tab.says("Click inside")
    tab.page.reload()
    tab.says("Click inside")
    assert not tab.page.locator("#door").is_visible()
    assert {url.partition("/view/")[0].partition("/pumit/")[0] for url in tab.addresses} >= {
        tab.server.url
    }
    assert all(url.startswith((tab.server.url, "data:", "blob:")) for url in tab.addresses)
    assert not [url for url in tab.addresses if TOKEN in url]
    # A refused request is told by the browser itself; the policy is not broken.
    assert [c for c in tab.complaints if "401" not in c] == []
    second = tab.context.new_page()
    second.goto(f"{tab.server.url}/view/")
    second.locator("#door").wait_for()
    tab.context.close()


def test_files_of_this_computer_are_shown_where_the_command_line_has_them(opened, tmp_path):
    axial, sagittal = spotted(DIRECTIONS["axial"]), spotted(DIRECTIONS["sagittal"])
    (tmp_path / "sagittal.nii").write_bytes(nifti_bytes(sagittal.array, sagittal))
    files = [(tmp_path / "sagittal.nii", 2)]
    # The last ones do not say where their axes point.
    for what, ending, content in placed_files(axial):
        if what in ("NIfTI without forms", "NRRD with spacings", "MHA without a matrix"):
            files.append((tmp_path / f"mine{ending}", 0))
            files[-1][0].write_bytes(content)
    assert len(files) == 4
    tab = opened(None)
    tab.page.on("dialog", lambda question: question.accept())  # segments are not saved
    for path, plane in files:
        tab.page.locator("#file").set_input_files(path)
        tab.says("Click inside")
        read, held = Volume.read(path), tab.server.engine.sessions[-1].volume
        assert np.array_equal(held.array, read.array)
        corners = [(20, 43, 35), *np.eye(3)]
        assert np.allclose(held.index_to_world(corners), read.index_to_world(corners), atol=1e-3)
        tab.page.mouse.click(*tab.brightest(plane))
        tab.says("mL")
        (point,) = tab.prompts()
        assert np.abs(nearest(read, point.point_lps) - SPOT).max() < 1.01
        assert tab.page.locator("[data-format=dcm]").is_disabled()
    tab.page.get_by_role("button", name="Undo").click()
    assert tab.page.get_by_role("button", name="Undo").is_disabled()


# Shown by NiiVue at another place than ITK has them, or with other voxels.
MISREAD = {
    *("NIfTI that turned its sform", "NIfTI that turned to a template"),
    *("NIfTI that turned to a better qform", "NIfTI that moved a better sform"),
    *("NIfTI with two spacings", "NIfTI with two spacings and no qform"),
    *("NIfTI with negative spacing", "NIfTI with odd qfac", "NIfTI with impossible quaternion"),
    *("NIfTI with negative spacing and no forms", "NIfTI with half a turn"),
    *("NIfTI with quaternion of NaN", "NIfTI with a sheared sform"),
    *("NIfTI in micrometres", "NIfTI in metres"),
    *("NRRD in scanner's axes", "NRRD in axes without names", "NRRD in microns"),
    *("NRRD with spacings and a place", "NRRD with axis mins", "NRRD sheared"),
    *("NRRD with time", "NRRD with components", "NRRD with a component"),
    *("NRRD with a value like a field", "NRRD skipping bytes", "NRRD skipping lines"),
    *("MHA by other names", "MHA with Rotation and Origin", "MHA with a size of elements"),
    *("MHA without spaces", "MHA with channels", "MHA with bytes before", "MHA of four axes"),
    *("MHA with the high byte first, by another name", "MHA with the high byte first, in capitals"),
    *("MHA compressed, in capitals", "MHA of text"),
    *("cut at 0 bytes", "cut at 300 bytes", "cut at 500 bytes"),
}


def test_a_file_is_opened_where_the_command_line_has_it_or_refused_in_a_sentence(opened, tmp_path):
    voxels = np.random.default_rng(0).integers(0, 1000, size=(5, 8, 7), dtype=np.int16)
    volume = Volume(voxels, (3.0, 0.8, 1.1), (-20.0, 7.0, 100.0), TILT)
    tab = opened(None, {"width": 320, "height": 240})  # little to draw
    outcome = tab.page.locator("#status:has-text('Click inside'), #problem:not([hidden])")
    refused = set()
    whole = nifti_bytes(voxels, volume)
    cuts = [(f"cut at {kept} bytes", ".nii", whole[:kept]) for kept in (0, 300, 500)]
    for what, ending, content in [*placed_files(volume), *cuts]:
        path = tmp_path / f"{what}{ending}"
        path.write_bytes(content)
        tab.page.evaluate("() => { byId('problem').hidden = true; say(''); }")
        tab.page.locator("#file").set_input_files(path)
        outcome.first.wait_for()
        problem = tab.page.locator("#problem")
        if problem.is_visible():
            assert re.search("open it by|damaged, incomplete", problem.inner_text()), what
            refused.add(what)
            continue
        held, read = tab.server.engine.sessions[-1].volume, Volume.read(path)
        assert np.array_equal(held.array.ravel(), read.array.ravel()), what
        corners = list(np.ndindex(2, 2, 2)) * (np.array(held.shape) - 1)
        gap = np.abs(held.index_to_world(corners) - read.index_to_world(corners))
        assert gap.max() < 0.2, what  # a quarter of a voxel
    assert refused == MISREAD


def test_after_a_scan_that_did_not_arrive_for_sure_clicks_are_about_the_one_shown(tab, other):
    """A gateway gives up while the server still reads: the server may have either scan."""
    shown = tab.server.state.scan.array
    x, y = tab.brightest(0)
    tab.page.on("dialog", lambda question: question.accept())  # segments are not saved
    for clicked in ("after", "while", "before"):
        x += 4  # an answer to the same click is not asked for again
        answers, scans = tab.hold("/predict") if clicked == "before" else [], tab.hold("/volume")
        if clicked == "before":
            tab.page.mouse.click(x, y)
            tab.wait_for(answers)
        tab.page.locator("#file").set_input_files([])  # the same file again would change nothing
        tab.page.locator("#file").set_input_files(other[1])
        tab.wait_for(scans)
        assert scans[0].fetch().ok
        assert np.array_equal(tab.server.engine.sessions[-1].volume.array, other[0])
        if clicked == "before":
            answers[0].fulfill(response=answers[0].fetch())
        if clicked == "while":
            tab.page.mouse.click(x, y)
        tab.page.wait_for_timeout(500)
        assert tab.page.locator("#segments small").inner_text() == "", clicked
        scans[0].fulfill(status=504, body="<html>")
        if clicked == "after":
            tab.page.locator("#problem", has_text="504").wait_for()
            tab.page.mouse.click(x, y)
        tab.says("mL")
        assert np.array_equal(tab.server.engine.sessions[-1].volume.array, shown), clicked
        assert len(tab.prompts()) == 1
        tab.page.keyboard.press("Control+z")
        tab.says("Undone")


def test_clicks_and_the_next_scan_wait_while_a_scan_is_sent_again(tab, other, tmp_path):
    tab.page.on("dialog", lambda question: question.accept())  # segments are not saved
    spot = x, y = tab.brightest(0)
    for claims, reason in enumerate(("lost", "expired"), start=2):
        if reason == "expired":
            tab.page.get_by_role("button", name="New segment").click()
            y += 20
            tab.expire()
        else:
            tab.answer("/volume", status=504, body="<html>")
            tab.page.locator("#file").set_input_files(other[1])
            tab.page.locator("#problem", has_text="504").wait_for()
        scans = tab.hold("/scan")
        tab.page.mouse.click(x, y)
        tab.wait_for(scans)
        tab.page.mouse.click(x + 20, y)
        tab.page.wait_for_timeout(500)
        scans[0].continue_()
        tab.says("mL")
        assert tab.page.evaluate("current().prompts.length") == 2, reason
        assert tab.page.locator("#problem").is_hidden()
        assert tab.claims() == claims
    # A file is opened while the last one is sent again slowly, and is not replaced by it.
    shown = tab.server.state.scan
    (tmp_path / "first.nii").write_bytes(nifti_bytes(shown.array, shown))
    tab.page.locator("#file").set_input_files(tmp_path / "first.nii")
    tab.says("Click inside")
    tab.expire()
    scans = tab.hold("/volume")
    tab.page.mouse.click(*spot)
    tab.wait_for(scans)
    tab.page.locator("#file").set_input_files(other[1])
    tab.page.wait_for_timeout(1000)
    scans[0].continue_()
    tab.says("Click inside")
    tab.page.wait_for_timeout(500)
    tab.click_spot()
    assert np.array_equal(tab.server.engine.sessions[-1].volume.array, other[0])
    assert len(tab.prompts()) == 1
    # Nor does a file that is read slowly replace the next one.
    tab.page.evaluate(
        "() => { const load = niivue.NVImage.loadFromFile; niivue.NVImage.loadFromFile ="
        "async (given) => { if (given.name === 'first.nii') await new Promise((go) =>"
        "{ window.go = go; }); return load.call(niivue.NVImage, given); }; }"
    )
    tab.page.locator("#file").set_input_files(tmp_path / "first.nii")
    tab.page.wait_for_function("() => window.go")
    tab.page.locator("#file").set_input_files(other[1])
    tab.says("Click inside")
    tab.click_spot()
    tab.page.evaluate("go()")
    tab.page.wait_for_timeout(1000)
    assert tab.page.evaluate("current().prompts.length") == 1
    assert np.array_equal(tab.server.engine.sessions[-1].volume.array, other[0])


def test_a_session_keeps_its_scan_if_the_next_one_is_refused_and_is_opened_again(tab, tmp_path):
    # A scan that a new session refuses is sent again at the next click.
    tab.expire()
    tab.answer("/scan", status=503, json={"detail": "All are busy.", "error": "BusyError"})
    tab.page.mouse.click(*tab.brightest(0))
    tab.page.locator("#problem", has_text="All are busy").wait_for()
    # The newest click is asked again if it was cancelled.
    tab.answer("/predict", status=409, json={"detail": "Superseded.", "error": "Cancelled"})
    tab.click_spot()
    assert len(tab.prompts()) == 1
    claims = tab.claims()
    tab.page.on("dialog", lambda question: question.accept())  # segments are not saved
    shown = tab.server.state.scan
    (tmp_path / "empty.nii").write_bytes(nifti_bytes(np.zeros_like(shown.array), shown))
    (tmp_path / "other.nii").write_bytes(nifti_bytes(shown.array, shown))
    tab.page.locator("#file").set_input_files(tmp_path / "empty.nii")
    tab.page.locator("#problem", has_text="constant").wait_for()
    busy = {"detail": "Other uploads fill the memory.", "error": "BusyError"}
    tab.answer("/volume", status=503, json=busy)
    tab.page.locator("#file").set_input_files(tmp_path / "other.nii")
    tab.page.locator("#problem", has_text="Other uploads").wait_for()
    for number in (2, 3):
        tab.page.get_by_role("button", name="Another answer").click()
        tab.says(f"answer {number} of 3")
        assert tab.prompts()[-1] == AnswerPrompt(number)
        assert tab.claims() == claims + number - 2
        tab.expire()


def restarted(tab, serving, scan: Volume) -> Running:
    """Another server at the address of the tab's one, which has ended."""
    tab.server.stop()
    return serving(scan, int(tab.server.url.rpartition(":")[2]))


def test_a_tab_left_open_gets_no_answer_and_no_file_about_the_next_scan(tab, serving, tmp_path):
    shown = tab.server.state.scan
    (tmp_path / "series").mkdir()
    write_dicom_series(shown, tmp_path / "series", patient_id="OTHER")
    next_scans = {
        "another patient's": replace(shown, array=shown.array[::-1].copy()),
        "another grid": replace(shown, origin_lps=(-20.0, 7.0, 101.0)),
        "another series": Volume.read(tmp_path / "series"),
    }
    tab.click_spot()
    x, y = tab.brightest(2)
    problem = tab.page.locator("#problem", has_text="shows another scan than the one that is open")
    for what, scan in next_scans.items():
        tab.server = restarted(tab, serving, scan)
        tab.page.mouse.click(x, y)
        problem.wait_for()
        for ending in ("nii.gz", "seg.nrrd"):
            tab.page.locator(f"[data-format='{ending}']").click()
            problem.wait_for()
        tab.page.evaluate("endSession()")
        tab.page.evaluate("askForToken()")
        assert problem.is_visible()
        tab.enter()  # a code opens no other scan, either
        tab.page.locator("#door").wait_for(state="hidden")
        problem.wait_for()
        assert [s for s in tab.server.engine.sessions if s.answered] == [], what
        for _ in range(500):  # the page gives its lease back after it has said so
            if not len(tab.server.state.leases):
                break
            tab.page.wait_for_timeout(20)
        assert len(tab.server.state.leases) == 0, what
        # The mask is still there, and its scan can be opened again.
        assert tab.page.evaluate("current().prompts.length") == 1
    again = restarted(tab, serving, shown)
    with tab.page.expect_download():
        tab.page.locator("[data-format='nii.gz']").click()
    assert len(again.engine.sessions) == 1


def test_a_download_waits_for_a_mask_that_is_being_computed(tab, tmp_path):
    tab.click_spot()
    tab.page.get_by_role("button", name="New segment").click()
    held = tab.hold("/predict")
    left, top, right, bottom = tab.tiles()[0]
    tab.page.mouse.click((left + right) / 2, (top + bottom) / 2)
    tab.wait_for(held)
    with tab.page.expect_download() as download:
        tab.page.locator("[data-format='seg.nrrd']").click()
    download.value.save_as(tmp_path / "two.seg.nrrd")
    assert len(read_label_file(tmp_path / "two.seg.nrrd").segments) == 2
    # Without an answer nothing is downloaded, and the reason is said.
    tab.page.keyboard.press("Control+z")
    tab.page.evaluate("answers.clear()")
    tab.page.route("**/predict", lambda route: route.abort())
    tab.page.evaluate("download('nii.gz')")
    tab.page.get_by_text("The server does not answer").wait_for()
