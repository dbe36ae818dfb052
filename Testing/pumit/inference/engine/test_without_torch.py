"""Clicking works where PyTorch is not installed, and what needs it says so in one line."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from absent_torch import WITHOUT
from ball_scan import BALL, at, scan, session_on
from pumit.errors import PumitError
from pumit.inference.engine import choice, openvino_engine
from pumit.inference.engine.torch_engine import TorchEngine
from pumit.inference.interactive.segmenter import load_segmenter
from pumit.models.model_file import export_model

CORE = Path(__file__).resolve().parents[4] / "PUMITSegment"


def without_torch(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(CORE)}
    environment.pop("PUMIT_ENGINE", None)
    command = [sys.executable, "-c", WITHOUT + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    run = "from pumit.cli.main import main\nsys.exit(main())"
    return without_torch(run, *arguments)


def test_no_telemetry_is_loaded() -> None:
    code = (
        "import pumit\npumit.load_segmenter()\nprint([m for m in sys.modules if 'telemetry_' in m"
    )
    ran = without_torch(code + " or m == 'openvino_telemetry' and sys.modules[m]])")
    assert "openvino_telemetry" not in ran.stdout, ran.stderr
    assert ran.returncode == 0


def test_the_server_needs_no_torch() -> None:
    ran = without_torch("import pumit.server.serve, pumit.server.app, pumit.nninteractive.client")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_gpu_without_torch_is_refused_in_one_line(device: str) -> None:
    code = "import pumit\nfrom pumit.errors import PumitError\ntry: pumit.load_segmenter(device="
    ran = without_torch(code + f"{device!r})\nexcept PumitError as error: print(error)")
    assert "pip install torch monai einops" in ran.stdout
    assert len(ran.stdout.splitlines()) == 1


def test_an_automatic_model_without_torch_is_refused_in_one_line() -> None:
    code = "import numpy as np\nimport pumit\ntry: pumit.predict(np.zeros((4, 4)), 'abdomen-ct')\n"
    ran = without_torch(f"{code}except ValueError as error: print(error)")
    assert "pip install torch monai einops" in ran.stdout, ran.stderr
    assert len(ran.stdout.splitlines()) == 1


def test_training_without_torch_is_refused_in_one_line(tmp_path: Path) -> None:
    ran = command("train", "segmentation", "--data", str(tmp_path), "-o", str(tmp_path / "run"))
    assert ran.returncode == 2
    assert len(ran.stderr.splitlines()) == 1


def test_a_model_that_was_handed_on_is_imported_and_clicked_with(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_on = tmp_path / "tiny.pumit.zip"
    export_model(tiny_checkpoint, handed_on)
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path / "home"))
    ran = command("models", "import", str(handed_on), "--name", "ours")
    assert ran.returncode == 0, ran.stderr
    code = "import pumit\nsegmenter = pumit.load_segmenter('ours')\nprint(segmenter.name)"
    ran = without_torch(code)
    assert ran.stdout.split() == ["ours"], ran.stderr


@pytest.mark.parametrize(
    "error", [ImportError("DLL load failed"), RuntimeError("Illegal CPU\nUnsupported instruction")]
)
def test_torch_takes_over_where_openvino_does_not_work(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Missing, too old, or refusing the CPU."""

    def fail(*given: object, **named: object) -> None:
        raise error

    monkeypatch.delenv(choice.VARIABLE, raising=False)
    if isinstance(error, ImportError):
        monkeypatch.setitem(sys.modules, "pumit.inference.engine.openvino_engine", None)
    else:
        monkeypatch.setattr("pumit.inference.engine.openvino_engine.OpenVinoEngine", fail)
    assert isinstance(load_segmenter(tiny_checkpoint, device="cpu").engine, TorchEngine)
    monkeypatch.setattr(choice, "has_torch", lambda: False)
    with pytest.raises(PumitError, match="pip install") as caught:
        load_segmenter(tiny_checkpoint, device="cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("capabilities", [["FP32", "BF16"], ["FP32"]])
def test_the_cpu_decides_the_precision(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capabilities: list[str]
) -> None:
    monkeypatch.delenv(choice.VARIABLE, raising=False)
    core = SimpleNamespace(get_property=lambda *_: capabilities)
    with monkeypatch.context() as patched:
        patched.setattr(openvino_engine, "shared_core", lambda: core)
        precision = openvino_engine.best_precision()
    assert precision == ("bf16" if "BF16" in capabilities else "f32")
    monkeypatch.setattr(openvino_engine, "best_precision", lambda: precision)
    engine = load_segmenter(tiny_checkpoint, device="cpu").engine
    assert isinstance(engine, openvino_engine.OpenVinoEngine)
    assert engine.precision == precision


def test_an_unknown_engine_is_refused(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(choice.VARIABLE, "tensorrt")
    with pytest.raises(PumitError, match="PUMIT_ENGINE"):
        load_segmenter(tiny_checkpoint)


def test_both_engines_give_one_mask(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a session, which also counts the memory of what an engine computed."""
    volume, _ = scan()
    masks = []
    for engine in ("openvino", "torch"):
        monkeypatch.setenv(choice.VARIABLE, engine)
        monkeypatch.setattr("pumit.inference.loading.pick_precision", lambda device: torch.float32)
        monkeypatch.setattr(openvino_engine, "best_precision", lambda: "f32")
        session = session_on(volume, load_segmenter(tiny_checkpoint, device="cpu"))
        session.add_point(at(volume, BALL))
        session.add_point(at(volume, (1, 2, 2)), positive=False)
        masks.append(session.predict())
        assert session.solver.scan.embeddings
        assert all(found.nbytes > 0 for found in session.solver.scan.embeddings.values())
    both = masks[0].sum() + masks[1].sum()
    assert both == 0 or 2 * (masks[0] & masks[1]).sum() / both >= 0.999


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="the variable names Intel's instructions"
)
def test_a_cpu_whose_instructions_are_too_old_is_one_line_or_torch(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenVINO computes trivial graphs there, and not those of the network."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    code = (
        "from pathlib import Path\nfrom pumit.errors import PumitError\n"
        "from pumit.inference.engine.choice import load_engine\n"
        f"try: print(load_engine(Path({str(tiny_checkpoint)!r}), 'cpu')[0].name)\n"
        "except PumitError as error: print(error)"
    )
    ran = without_torch(code)
    assert ran.stdout.startswith("OpenVINO cannot compute on this CPU ("), ran.stderr
    assert len(ran.stdout.splitlines()) == 1
    environment = {**os.environ, "PYTHONPATH": str(CORE)}
    command = [sys.executable, "-c", code]
    taken = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert taken.stdout.split() == ["torch"], taken.stderr
