"""Fixtures shared by every test."""

from __future__ import annotations

import gc
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import absent
import pytest
from draws import IS_FUZZING, draws
from file_order import longest_files_first
from hypothesis import HealthCheck, settings

# No test is timed: a busy machine is no failure. Where CI is set, the examples are the same every
# time, except at night.
settings.register_profile(
    "untimed",
    deadline=None,
    derandomize="CI" in os.environ and not IS_FUZZING,
    max_examples=draws(30),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("untimed")

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is trained in tests enters no index of the user's; no temporary folder stays.

    A program that a test kills cannot remove its own, nor can a library that forgets it.
    """
    with (
        tempfile.TemporaryDirectory(prefix="pumit-tests-", ignore_cleanup_errors=True) as temporary,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name in ("PUMIT_MODELS", "PUMIT_RUNS"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        for name in ("TMPDIR", "TEMP", "TMP"):
            patch.setenv(name, temporary)
        patch.setattr(tempfile, "tempdir", temporary)
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_hashes() -> Iterator[None]:
    """Patients of a campaign are hashed slowly, which would take a minute in all of the tests."""
    slow = hashlib.scrypt

    def quick(text: bytes, *, n: int, **given: Any) -> bytes:
        assert n >= 2**14
        return slow(text, n=2, **given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashlib, "scrypt", quick)
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real scans that lie next to the repository, never inside it."""
    candidates = [REPOSITORY.parent / "shared" / "data"]
    if "PUMIT_SHARED_DATA" in os.environ:
        candidates.insert(0, Path(os.environ["PUMIT_SHARED_DATA"]))
    for folder in candidates:
        if (folder / "cases").is_dir():
            return folder
    pytest.skip("real scans are absent: set PUMIT_SHARED_DATA to a folder that has cases/")


@pytest.fixture
def background() -> Iterator[Any]:
    """Threads whose results a test fetches with `poll` or `drain`; idle at its end."""
    from PUMITSlicerLib.computing.background import Background

    made = Background()
    yield made
    made.close()
    assert made.drain(20)
    assert made.isIdle


# --- 3D Slicer; what draws is not imported before a test asks for it ------------------------------

_FAILURES = pytest.StashKey[Any]()


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> pytest.Module | None:
    """Skip a test file that cannot be imported without PyTorch or slicer-core."""
    if absent.reasons():
        return absent.PerhapsAbsent.from_parent(parent, path=module_path)
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Keep the collection of garbage from looking at all that importing the tests loads."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test that asks for Slicer's scene; of several processes none ends long after."""
    for item in items:
        if "scene" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slicer)
    if hasattr(config, "workerinput"):  # one of several processes
        longest_files_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport, sched: Any) -> None:
    """End the run where one of several processes died.

    pytest-xdist 3.8 waits for ever if the others have no files left: it gives the rest of the file
    to no one.
    """
    distribution = sched.config.pluginmanager.getplugin("dsession")
    distribution.shouldstop = f"the process that ran {crashitem} died"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Keep the collection of garbage fast that follows each test on Slicer's scene."""
    result = yield
    if "scene" in getattr(item, "fixturenames", ()):
        from harness.program.garbage import keepLoaded

        keepLoaded()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test in whose course a callback raised or VTK complained."""
    result = yield
    if "PUMIT_STORIES" in os.environ:
        from harness.views.story import saveStory

        folder = Path(os.environ["PUMIT_STORIES"])
        saveStory(getattr(item, "originalname", item.name), getattr(item, "funcargs", {}), folder)
    failures = item.stash.get(_FAILURES, None)
    _failOn(failures.take() if failures is not None else [])
    return result


def _failOn(found: list[str]) -> None:
    if found:
        pytest.fail("while the test ran:\n" + "\n".join(found), pytrace=False)


@pytest.fixture
def failures(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Exceptions in callbacks, and VTK's errors; `failures.expected(pattern)` allows one."""
    pytest.importorskip("slicer_core", reason=absent.NO_SLICER)
    from harness.program.failures import Failures

    with Failures().listening() as listening:
        request.node.stash[_FAILURES] = listening
        yield listening
    _failOn(listening.take())


@pytest.fixture
def scene(failures: Any) -> Iterator[Any]:
    """Slicer's scene, as empty as at its start; `slicer.app` and `slicer.modules` are set."""
    from harness.program import core_application

    core_application.start()
    import slicer
    from harness.program.scene_state import SceneState

    _closeViews()  # an event that Qt delivers late may open one after its test
    logic = slicer.app.applicationLogic()
    for left in (logic.GetSliceLogics(), logic.GetViewLogics()):
        left.RemoveAllItems()
    state = SceneState()
    yield slicer.mrmlScene
    state.restore()
    _closeViews()


def _closeViews() -> None:
    """Close all views that are open, without loading what draws them."""
    if open_views := sys.modules.get("harness.views.open_views"):
        open_views.closeAll()


@pytest.fixture
def sliceView(scene: Any) -> Iterator[Callable[..., Any]]:
    """Makes slice views: sliceView(name="Red", orientation="Axial", size=(500, 500))."""
    import slicer
    from harness.views import open_views
    from harness.views.slice_view import SliceView

    def make(name: str = "Red", orientation: Any = "Axial", size: Any = (500, 500)) -> SliceView:
        manager = slicer.app.layoutManager() if name in ("Green", "Yellow") else None
        if manager is not None:
            manager.setLayout(slicer.vtkMRMLLayoutNode.SlicerLayoutFourUpView)
        view = open_views.sliceViewIfOpen(name)
        if view is not None:  # opened through the layout
            view.resize(*size)
            view.setOrientation(orientation)
            return view
        view = SliceView(name, orientation, size)
        open_views.add(view)
        return view

    yield make
    open_views.closeAll()


@pytest.fixture
def threeDView(scene: Any) -> Iterator[Callable[..., Any]]:
    """Makes 3D views: threeDView(name="1", size=(500, 500))."""
    from harness.views import open_views
    from harness.views.three_d_view import ThreeDView

    def make(name: str = "1", size: Any = (500, 500)) -> ThreeDView:
        view = ThreeDView(name, size)
        open_views.add(view)
        return view

    yield make
    open_views.closeAll()


@pytest.fixture
def slicerApp(scene: Any) -> Iterator[Any]:
    """`slicer.app` with Qt: `qt`, `ctk`, `slicer.qMRML...` and the base classes of modules."""
    pytest.importorskip("PySide6", reason='PySide6 is absent: pip install -e ".[slicer-test]"')
    pytest.importorskip("Qt", reason='Qt.py is absent: pip install -e ".[slicer-test]"')
    from harness.program import application

    app = application.start()
    yield app
    application.reset(app)


@pytest.fixture
def loadModule(slicerApp: Any) -> Iterator[Callable[[Path], Any]]:
    """Loads a scripted module: loadModule(path).widgetRepresentation() is its panel."""
    from harness.program import modules

    names: list[str] = []

    def load(path: Path) -> Any:
        names.append(Path(path).stem)
        return modules.loadModule(path)

    yield load
    for name in names:
        if slicerApp.moduleManager().module(name) is not None:
            modules.unloadModule(name)


@pytest.fixture
def mainWindow(slicerApp: Any) -> Iterator[Any]:
    """What `slicer.util.mainWindow()` finds: status bar, and `slicer.util.selectModule(name)`."""
    from harness.program.main_window import qSlicerMainWindow

    window = qSlicerMainWindow()
    window.show()
    yield window
    window.moduleSelector().leave()


@pytest.fixture
def dicomDatabase(slicerApp: Any, tmp_path: Path) -> Iterator[Any]:
    """`slicer.dicomDatabase`, empty; harness.storage.ctk_dicom_database.indexFolder() fills it."""
    import slicer
    from harness.storage.ctk_dicom_database import ctkDICOMDatabase

    slicer.dicomDatabase = ctkDICOMDatabase(tmp_path / "DICOM")
    yield slicer.dicomDatabase
    del slicer.dicomDatabase


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    """Where pictures go: the folder of PUMIT_SCREENSHOTS, or a temporary one."""
    folder = Path(os.environ.get("PUMIT_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
