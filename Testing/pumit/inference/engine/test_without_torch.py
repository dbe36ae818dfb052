"""Clicking works where PyTorch is not installed, and what needs it says so in one line."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pumit
import pytest
import torch
from absent_torch import WITHOUT
from ball_scan import BALL, at, scan, session_on
from pumit.client import LocalWorker, RemoteSession
from pumit.client.http_client import Client
from pumit.errors import PumitError
from pumit.inference.engine import choice, openvino_engine
from pumit.inference.engine.torch_engine import TorchEngine
from pumit.inference.interactive.segmenter import load_segmenter
from pumit.models.model_file import export_model
from pumit.nninteractive.client.session import NNInteractiveSession

CORE = Path(__file__).resolve().parents[4] / "PUMITSegment"


def without_torch(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(CORE)}
    environment.pop("PUMIT_ENGINE", None)
    command = [sys.executable, "-c", WITHOUT + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


PROGRAM = """
import contextlib, io, json, sys
import numpy as np, pumit, pumit.server.serve, pumit.server.app, pumit.nninteractive.client
from pumit.cli.main import main
from pumit.errors import PumitError

def refused(call, *given):
    try:
        return call(*given)
    except (PumitError, ValueError) as error:
        return str(error)

def command(*arguments):
    with contextlib.redirect_stderr(io.StringIO()) as said:
        return [main(arguments), said.getvalue().strip()]

handed_on, folder = sys.argv[1:]
loaded = command("models", "import", handed_on, "--name", "ours")
print(json.dumps({
    "name": pumit.load_segmenter("ours").name,
    "imported": loaded,
    "telemetry": [m for m in sys.modules if m.startswith("openvino_telemetry") and sys.modules[m]],
    "gpu": refused(lambda: pumit.load_segmenter(device="cuda")),
    "automatic": refused(lambda: pumit.predict(np.zeros((4, 4)), "abdomen-ct")),
    "training": command("train", "segmentation", "--data", folder, "-o", folder + "/run"),
}))
"""


def test_clicking_works_without_torch_and_what_needs_it_says_so_in_one_line(
    tiny_checkpoint, tmp_path, monkeypatch
):
    """With a model that was handed on; neither server nor client imports PyTorch."""
    handed_on = tmp_path / "tiny.pumit.zip"
    export_model(tiny_checkpoint, handed_on)
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path / "home"))
    ran = without_torch(PROGRAM, str(handed_on), str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    assert (said["name"], said["imported"][0], said["telemetry"]) == ("ours", 0, [])
    for refusal in (said["gpu"], said["automatic"]):
        assert "pip install torch monai einops" in refusal
    assert said["training"][0] == 2
    for line in (said["gpu"], said["automatic"], said["training"][1]):
        assert "\n" not in line


@pytest.mark.parametrize(
    "error", [ImportError("DLL load failed"), RuntimeError("Illegal CPU\nUnsupported instruction")]
)
def test_torch_takes_over_where_openvino_does_not_work(tiny_checkpoint, monkeypatch, error):
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
def test_the_cpu_decides_the_precision(tiny_checkpoint, monkeypatch, capabilities):
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


def test_an_unknown_engine_is_refused(tiny_checkpoint, monkeypatch):
    monkeypatch.setenv(choice.VARIABLE, "tensorrt")
    with pytest.raises(PumitError, match="PUMIT_ENGINE"):
        load_segmenter(tiny_checkpoint)


def test_both_engines_give_one_mask(tiny_checkpoint, monkeypatch):
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
def test_a_cpu_whose_instructions_are_too_old_is_one_line_or_torch(tiny_checkpoint, monkeypatch):
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


CENTRE = (6, 20, 18)


@pytest.fixture
def client(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Client]:
    """Of a worker, which is what the panel of PUMIT Segment starts."""
    # Python runs this module, where it finds one, before anything else.
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.delenv("PUMIT_ENGINE", raising=False)
    worker = LocalWorker(str(tiny_checkpoint))
    with worker, worker.client() as client:
        yield client


@pytest.mark.slow
def test_a_worker_without_torch_clicks_and_refuses_the_rest_in_one_line(client):
    d, h, w = np.indices((12, 40, 40))
    ball = (d - 6) ** 2 + (h - 20) ** 2 / 4 + (w - 18) ** 2 / 4 < 25
    noise = np.random.default_rng(0).normal(0, 5, ball.shape)
    scan = pumit.Volume((100 * ball + noise).astype(np.float32))
    for protocol in (RemoteSession, NNInteractiveSession):
        with protocol(client) as session:
            session.set_volume(scan)
            session.add_point(tuple(scan.index_to_world(CENTRE)))
            first = session.predict()
            session.add_point((0.0, 0.0, 0.0), positive=False)
            session.predict()
            session.undo()
            assert np.array_equal(session.predict(), first)
            if isinstance(session, RemoteSession):
                with pytest.raises(PumitError, match="needs PyTorch: pip install") as refused:
                    session.reconstruct()
                assert "\n" not in str(refused.value)
                assert np.array_equal(session.predict(), first)
