"""Installing asks, explains, can be cancelled, and replaces nothing; proven with pip itself."""

import importlib.metadata
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import slicer
from fake_compute import wait_for
from made_wheels import make_wheel
from packaging.requirements import Requirement
from packaging.tags import sys_tags
from pumit.errors import Cancelled, ServiceError
from PUMITSlicerLib.computing import dependencies
from PUMITSlicerLib.computing.python_executable import SlicerPython, program_environment
from PUMITSlicerLib.computing.settings import ComputeMode
from PUMITSlicerLib.installing import installation as installation_steps
from PUMITSlicerLib.installing.installation import (
    Installer,
    InstallStep,
    PackagingRunner,
    ProgramRunner,
    find_runner,
    make_plan,
    wheel_problems,
)

LOCAL = ComputeMode.LOCAL


def having(**versions):
    return lambda name: versions.get(
        name.replace("-", "_"), "0.50" if name == "uvicorn" else "9999"
    )


def test_torch_comes_through_the_extension_where_there_is_one():
    plan = make_plan(
        LOCAL,
        withTorch=True,
        hasTorchExtension=True,
        version_of=having(torch=None, light_the_torch=None, monai=None),
    )
    assert plan.isPossible
    assert plan.steps == (
        InstallStep("light-the-torch", "pip", ("install", "light-the-torch>=0.5")),
        InstallStep("torch", "light_the_torch", ("install", "torch>=2.4")),
        InstallStep("monai", "pip", ("install", "monai>=1.4")),
    )
    for words in ("torch and monai", "250 MB", "2.8 GB"):
        assert words in plan.explanation


def test_without_torch_everything_comes_in_one_call():
    absent = having(torch=None, monai=None, openvino=None, rich=None)
    plan = make_plan(LOCAL, hasTorchExtension=True, version_of=absent)
    assert plan.isPossible
    assert plan.steps == (
        InstallStep("2 packages", "pip", ("install", "openvino>=2025.1", "rich>=13")),
    )
    for words in ("openvino and rich", "59 MB", "With PyTorch"):
        assert words in plan.explanation


def test_without_the_extension_torch_comes_from_the_index_where_the_user_allows_it():
    plan = make_plan(LOCAL, withTorch=True, version_of=having(torch=None))
    assert not plan.isPossible
    assert len(plan.problems) == 1
    assert "Extensions Manager" in plan.problems[0]
    plan = make_plan(
        LOCAL, withTorch=True, allowsTorchFromIndex=True, version_of=having(torch=None)
    )
    assert plan.isPossible
    assert plan.steps == (InstallStep("torch", "pip", ("install", "torch>=2.4")),)


def test_a_folder_of_wheels_needs_neither_network_nor_extension(tmp_path):
    make_wheel(tmp_path, "torch", "2.9")
    plan = make_plan(
        LOCAL, withTorch=True, wheelFolder=str(tmp_path), version_of=having(torch=None)
    )
    assert plan.isPossible
    offline = ("install", "--no-index", "--find-links", str(tmp_path), "torch>=2.4")
    assert plan.steps == (InstallStep("torch", "pip", offline),)
    assert "no network is used" in plan.explanation


def test_a_folder_that_lacks_something_is_refused_before(tmp_path):
    make_wheel(tmp_path, "torch", "1.0")
    plan = make_plan(
        LOCAL,
        withTorch=True,
        wheelFolder=str(tmp_path),
        version_of=having(torch=None, monai=None),
    )
    assert not plan.isPossible
    torch, monai = plan.problems
    assert "torch>=2.4" in torch
    assert "1.0" in torch
    assert "monai>=1.4" in monai


def test_what_slicer_brings_is_never_in_a_step():
    plan = make_plan(
        LOCAL,
        withTorch=True,
        allowsTorchFromIndex=True,
        version_of=having(pydicom="2.4.4", monai=None),
    )
    assert not plan.isPossible
    assert "pydicom" in plan.problems[0]
    assert [step.name for step in plan.steps] == ["monai"]


def test_nothing_missing_is_no_plan(background):
    plan = make_plan(LOCAL, version_of=having())
    assert not plan.isPossible
    assert not plan.steps
    assert not plan.problems
    with pytest.raises(ServiceError, match="Nothing is missing"):
        Installer(background).install(plan, print, print)


class Reports:
    """Hears everything an installer tells."""

    def __init__(self, installer, plan):
        self.lines, self.progress, self.ends = [], [], []
        installer.install(
            plan,
            lambda: self.ends.append("done"),
            self.ends.append,
            onLine=self.lines.append,
            onProgress=lambda text, fraction: self.progress.append((text, fraction)),
        )


class PipTarget:
    """Real pip, which installs into a folder of the test and only from wheels of the test."""

    def __init__(self, folder, background, monkeypatch):
        self.folder, self.wheels = folder / "target", folder / "wheels"
        self.wheels.mkdir()
        lines = ["torch>=2.4", "pumit-test-beta>=1"]
        monkeypatch.setattr(
            dependencies,
            "requirements",
            lambda mode, withTorch: [Requirement(line) for line in lines],
        )
        environment = {**program_environment(), "PIP_TARGET": str(self.folder)}
        environment |= {"PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        runner = ProgramRunner(background, SlicerPython(sys.executable, environment))
        self.installer = Installer(background, runner, self.version)

    def version(self, name):
        for found in importlib.metadata.distributions(name=name, path=[str(self.folder)]):
            return found.version
        return None

    def plan(self):
        return make_plan(LOCAL, wheelFolder=str(self.wheels), version_of=self.version)


@pytest.fixture
def target(tmp_path, background, monkeypatch):
    pytest.importorskip("pip", reason="this Python has no pip")
    return PipTarget(tmp_path, background, monkeypatch)


@pytest.mark.slow
def test_pip_installs_from_the_folder_and_tells_what_it_does(target, background):
    make_wheel(target.wheels, "torch", "2.9")
    make_wheel(target.wheels, "pumit-test-beta", "1.1", needs=("pumit-test-gamma",))
    make_wheel(target.wheels, "pumit-test-gamma", "3.0")
    plan = target.plan()
    assert plan.problems == ()
    reports = Reports(target.installer, plan)
    assert target.installer.isRunning
    with pytest.raises(ServiceError, match="already"):
        target.installer.install(plan, print, print)
    assert wait_for(background, lambda: reports.ends, 120)
    assert reports.ends == ["done"]
    assert [reports.progress[0], reports.progress[-1]] == [
        ("Installing torch", 0.0),
        ("Installing pumit_test_gamma", 0.5),
    ]
    assert any("Successfully installed torch-2.9" in line for line in reports.lines)
    assert reports.lines == target.installer.log
    assert target.version("pumit-test-gamma") == "3.0"
    assert not target.installer.isRunning
    assert target.plan().needs == ()


def test_pip_may_not_replace_what_is_installed(target, background):
    # The test's own Python has another numpy.
    make_wheel(target.wheels, "torch", "2.9", needs=("numpy==0.0.1",))
    make_wheel(target.wheels, "numpy", "0.0.1")
    make_wheel(target.wheels, "pumit-test-beta", "1.1")
    reports = Reports(target.installer, target.plan())
    assert wait_for(background, lambda: reports.ends, 120)
    assert "torch is not compatible" in str(reports.ends[0])
    assert target.version("numpy") is None


class SlowRunner:
    """Runs steps that end on command."""

    def __init__(self, canEnd=True):
        self.steps, self.finish, self.ended, self.canEnd = [], None, 0, canEnd

    def run(self, step, onLine, onFinished):
        self.steps.append(step)
        self.finish = onFinished

        def end():
            self.ended += 1
            onFinished(-9)

        return end if self.canEnd else None


PLAN = make_plan(
    LOCAL,
    withTorch=True,
    allowsTorchFromIndex=True,
    version_of=having(torch=None, monai=None),
)


def test_cancelling_ends_the_step_that_runs(background):
    runner = SlowRunner()
    installer = Installer(background, runner, having())
    reports = Reports(installer, PLAN)
    installer.cancel()
    assert runner.ended == 1
    assert [type(end) for end in reports.ends] == [Cancelled]
    assert len(runner.steps) == 1
    assert not installer.isRunning
    installer.cancel()


def test_a_step_that_cannot_be_ended_is_the_last_one_after_cancelling(background):
    runner = SlowRunner(canEnd=False)
    installer = Installer(background, runner, having())
    reports = Reports(installer, PLAN)
    installer.cancel()
    assert reports.ends == []
    runner.finish(0)
    assert [type(end) for end in reports.ends] == [Cancelled]
    assert len(runner.steps) == 1


class BusyRunner:
    """As Slicer's own installer while another module installs something."""

    def run(self, step, onLine, onFinished):
        raise RuntimeError("A non-blocking pip_install is already in progress.")


def test_a_step_that_cannot_start_is_said_and_can_be_tried_again(background):
    installer = Installer(background, BusyRunner(), having())
    reports = Reports(installer, PLAN)
    assert [type(end) for end in reports.ends] == [ServiceError]
    assert "already in progress" in str(reports.ends[0])
    assert not installer.isRunning


def test_every_step_has_the_constraints_which_are_gone_afterwards(background):
    runner = SlowRunner()
    installer = Installer(background, runner, having())
    Reports(installer, PLAN)
    option, file = runner.steps[0].arguments[-2:]
    assert option == "-c"
    assert "numpy==" in Path(file).read_text("utf-8")
    runner.finish(0)
    runner.finish(0)
    assert not Path(file).exists()


def test_what_does_not_become_visible_is_said(background):
    runner = SlowRunner()
    reports = Reports(Installer(background, runner, having(torch=None)), PLAN)
    runner.finish(0)
    runner.finish(0)
    assert str(reports.ends[0]).startswith("torch could not be imported")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "ERROR: Cannot install rich>=13 and a==1 because these package versions have "
            "conflicting dependencies.",
            "rich>=13 and a==1 is not compatible",
        ),
        ("OSError: [Errno 28] No space left on device", "The disk is full"),
        ("NewConnectionError: Failed to establish", "package index cannot be reached"),
        ("ERROR: ResolutionImpossible: for help", "is not compatible with the installed packages"),
        ("ERROR: No matching distribution found for torch>=2.4", "There is no torch>=2.4 for this"),
        ("Segmentation fault", "Installing torch failed with status 1; the log says why."),
    ],
)
def test_why_pip_failed_is_one_sentence(background, line, sentence):
    class Failing:
        def run(self, step, onLine, onFinished):
            onLine(line)
            onFinished(1)

    reports = Reports(Installer(background, Failing(), having()), PLAN)
    assert sentence in str(reports.ends[0])


def test_a_program_is_ended_with_all_it_started(background, tmp_path):
    (tmp_path / "sleeper.py").write_text(
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print('sleeping', flush=True)\ntime.sleep(600)\n"
    )
    environment = {**program_environment(), "PYTHONPATH": str(tmp_path)}
    lines, statuses = [], []
    end = ProgramRunner(background, SlicerPython(sys.executable, environment)).run(
        InstallStep("x", "sleeper", ()), lines.append, statuses.append
    )
    assert wait_for(background, lambda: lines == ["sleeping"])
    end()
    # Its output ends only when no one holds it any more, so the child is gone too.
    assert wait_for(background, lambda: statuses)
    assert statuses[0] != 0


def nothing(name):
    return None


def test_a_folder_with_everything_has_no_problems(tmp_path):
    make_wheel(tmp_path, "alpha", "1.5", needs=("beta_x>=2", "gamma; extra == 'all'"))
    make_wheel(tmp_path, "beta-x", "2.1", needs=("win-only; sys_platform == 'nowhere'", "alpha"))
    make_wheel(tmp_path, "alpha", "0.9", tag="cp27-none-any")
    assert wheel_problems(tmp_path, ["alpha>=1"], nothing) == []


def test_what_is_installed_need_not_be_in_the_folder(tmp_path):
    make_wheel(tmp_path, "alpha", "1.5", needs=("numpy>=1",))
    assert wheel_problems(tmp_path, ["alpha"], {"numpy": "2.0"}.get) == []


@pytest.mark.parametrize(
    ("wheels", "sentences"),
    [
        ([("other", "1", {})], ["alpha>=1 is needed, but it is not in the folder."]),
        ([("alpha", "0.5", {})], ["alpha>=1 is needed, but the folder has 0.5."]),
        (
            [("alpha", "1.5", {"needs": ("beta==2",)}), ("beta", "1", {})],
            ["beta==2 is needed, but the folder has 1."],
        ),
        (
            [("alpha", "1.5", {"needs": ("beta", "gamma"), "tag": "cp27-cp27m-win32"})],
            [
                "alpha-1.5-cp27-cp27m-win32.whl is for another Python or system; "
                f"{next(sys_tags())} is needed."
            ],
        ),
        (
            [("alpha", "1.5", {"needs": ("beta", "gamma")})],
            [
                "beta is needed, but it is not in the folder.",
                "gamma is needed, but it is not in the folder.",
            ],
        ),
    ],
)
def test_what_is_missing_or_wrong_is_a_sentence_each(tmp_path, wheels, sentences):
    for name, version, options in wheels:
        make_wheel(tmp_path, name, version, **options)
    assert wheel_problems(tmp_path, ["alpha>=1"], nothing) == sentences


def test_an_absent_or_empty_folder_is_said(tmp_path):
    assert "does not exist" in wheel_problems(tmp_path / "none", ["alpha"], nothing)[0]
    assert "has no .whl files" in wheel_problems(tmp_path, ["alpha"], nothing)[0]


def test_files_that_are_no_wheels_are_named(tmp_path):
    make_wheel(tmp_path, "alpha", "1.5")
    (tmp_path / "strange.whl").write_bytes(b"x")
    (problem,) = wheel_problems(tmp_path, ["alpha"], nothing)
    assert problem.startswith("strange.whl ")


class Programs:
    """Notes what would run as a program."""

    def __init__(self):
        self.modules = []

    def run(self, step, onLine, onFinished):
        self.modules.append(step.module)


class Packaging:
    """`slicer.packaging` as Slicer has it."""

    def __init__(self):
        self.calls = []

    def pip_install(
        self,
        requirements,
        constraints=None,
        blocking=True,
        show_progress=True,
        requester=None,
        logCallback=None,
        completedCallback=None,
    ):
        assert threading.current_thread() is threading.main_thread()
        assert not blocking
        assert not show_progress
        self.calls.append(requirements)
        logCallback("Collecting")
        completedCallback(0)


def test_pip_runs_through_slicers_own_installer(background):
    packaging, programs, lines, ends = Packaging(), Programs(), [], []
    runner = PackagingRunner(packaging, programs)
    runner.run(
        InstallStep("monai", "pip", ("install", "monai", "-c", "x")), lines.append, ends.append
    )
    assert packaging.calls == [["monai", "-c", "x"]]
    assert (lines, ends) == (["Collecting"], [0])
    runner.run(
        InstallStep("torch", "light_the_torch", ("install", "torch")), lines.append, ends.append
    )
    assert programs.modules == ["light_the_torch"]


@pytest.mark.parametrize(
    ("modules", "testing", "kind"),
    [
        ({"slicer.packaging": Packaging()}, False, PackagingRunner),
        ({"slicer.pydeps": Packaging()}, False, PackagingRunner),
        ({"slicer.packaging": Packaging()}, True, ProgramRunner),
        (
            {"slicer.packaging": SimpleNamespace(pip_install=lambda requirements: 0)},
            False,
            ProgramRunner,
        ),
        ({}, False, ProgramRunner),
    ],
)
def test_slicers_installer_is_used_where_it_can_work_next_to_the_gui(
    background, monkeypatch, modules, testing, kind
):
    def find(name):
        if name not in modules:
            raise ImportError(name)
        return modules[name]

    app = SimpleNamespace(testingEnabled=lambda: testing)
    monkeypatch.setattr(slicer, "app", app, raising=False)
    monkeypatch.setattr(installation_steps, "import_module", find)
    assert type(find_runner(background)) is kind
