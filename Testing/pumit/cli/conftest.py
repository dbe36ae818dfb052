"""Run commands in this process, and files for them to work on."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import SimpleITK
from pumit.cli.main import main
from pumit.inference.interactive.segmenter import Segmenter

ANGLE = 0.3
DIRECTION = np.array(
    [[np.cos(ANGLE), -np.sin(ANGLE), 0], [np.sin(ANGLE), np.cos(ANGLE), 0], [0, 0, 1]]
)
BALL_INDEX = (6, 20, 24)  # (d, h, w)


@dataclass
class Ran:
    """What a command left behind."""

    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run `pumit` in this process, and expect a status (None: any); both streams are caught."""

    def command(*arguments: object, status: int | None = 0) -> Ran:
        capfd.readouterr()
        try:
            found = main([str(a) for a in arguments])
        except SystemExit as stop:
            found = int(stop.code or 0)
        caught = capfd.readouterr()
        assert status in (None, found), caught
        return Ran(caught.out, caught.err)

    return command


@pytest.fixture
def refused(run: Run, tmp_path: Path) -> Callable[..., str]:
    """Run `pumit` with bad input: one line, status 2, and no file that was not there before."""

    def command(*arguments: object, status: int = 2) -> str:
        before = sorted(tmp_path.rglob("*"))
        ran = run(*arguments, status=status)
        assert ran.err.count("\n") == 1, ran.err
        assert ran.err.startswith("pumit")
        assert "Traceback" not in ran.err
        assert ran.out == ""
        assert sorted(tmp_path.rglob("*")) == before
        return ran.err

    return command


@pytest.fixture
def bright(monkeypatch: pytest.MonkeyPatch, bright_segmenter: Segmenter) -> None:
    """Let every model be the one that segments what is bright."""
    monkeypatch.setattr(
        "pumit.inference.interactive.segmenter.load_segmenter", lambda *a, **k: bright_segmenter
    )


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    """An oblique scan with a bright ball, as NIfTI."""
    d, h, w = np.ogrid[:12, :40, :44]
    ball = ((d - 6) * 3.0) ** 2 + (h - 20) ** 2 + (w - 24) ** 2 < 12**2
    noise = np.random.default_rng(0).normal(0, 5, ball.shape)
    image = SimpleITK.GetImageFromArray((100 * ball + noise).astype(np.int16))
    image.SetSpacing((1.0, 1.0, 3.0))
    image.SetOrigin((-7.0, 11.0, -13.0))
    image.SetDirection(DIRECTION.ravel())
    path = tmp_path / "scan.nii.gz"
    SimpleITK.WriteImage(image, str(path))
    return path


def ras(index: tuple[int, int, int]) -> str:
    """World position of a voxel of `scan` as the command line wants it."""
    d, h, w = index
    x, y, z = DIRECTION @ np.array([w, h, d * 3.0]) + np.array([-7.0, 11.0, -13.0])
    return f"{-x},{-y},{z}"


@pytest.fixture
def inside() -> str:
    """R,A,S of the ball's centre; its first number is negative."""
    return ras(BALL_INDEX)


@pytest.fixture
def outside() -> str:
    """R,A,S of a voxel that the ball does not reach."""
    return ras((1, 2, 2))
