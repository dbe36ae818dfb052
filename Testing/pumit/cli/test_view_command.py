import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pumit
import pytest
import requests
import SimpleITK
from pumit.cli import view
from pumit.cli.main import main, parser_of
from pumit.server import serve as server
from pumit.volume import Volume


@pytest.fixture
def shown(monkeypatch):
    """Run `pumit view` without a model: what it would serve, and the page that it opens."""
    seen = {}

    def serve(settings, *, announce, scan):
        seen.update(settings=settings, scan=scan)
        announce({"url": "http://127.0.0.1:1234"})

    def show(address):
        path = Path(address.removeprefix("file://"))
        seen.update(address=address, mode=path.stat().st_mode & 0o777, text=path.read_text())
        return True

    monkeypatch.setattr(server, "serve", serve)
    monkeypatch.setattr(server, "leave_no_files", lambda: None)
    monkeypatch.setattr(view.webbrowser, "open", show)
    monkeypatch.setenv("DISPLAY", ":0")
    return seen


def written(tmp_path):
    from pumit.export.volume_file import write_volume_file

    volume = Volume(np.arange(60.0, dtype=np.float32).reshape(3, 4, 5), (3.0, 1.0, 2.0))
    write_volume_file(volume.array, volume, tmp_path / "scan.nii.gz")
    return tmp_path / "scan.nii.gz"


def test_the_token_reaches_the_browser_in_a_private_file_and_in_no_address(shown, tmp_path, capsys):
    assert main(["view", str(written(tmp_path))]) == 0
    assert shown["settings"].is_loopback
    assert shown["scan"].shape == (3, 4, 5)
    token = shown["settings"].token
    assert token not in shown["address"]
    assert f'name="token" value="{token}"' in shown["text"]
    assert re.search(r'<form method="post" action="http://127.0.0.1:1234/view/">', shown["text"])
    assert shown["mode"] == 0o600
    assert not Path(shown["address"].removeprefix("file://")).exists()
    out = capsys.readouterr().out
    assert "http://127.0.0.1:1234/view/" in out
    assert f"access code: {token}" in out


@pytest.mark.parametrize("how", ["option", "no screen"])
def test_no_browser_is_opened_where_none_is_wanted(shown, tmp_path, monkeypatch, how):
    if how == "no screen":
        monkeypatch.delenv("DISPLAY")
        monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
        monkeypatch.setattr(view.sys, "platform", "linux")
    main(["view", str(written(tmp_path)), *(["--no-browser"] if how == "option" else [])])
    assert "address" not in shown


def test_of_several_time_points_the_one_that_is_shown_is_named(shown, tmp_path, capsys):
    image = SimpleITK.GetImageFromArray(np.arange(60, dtype=np.int16).reshape(3, 4, 5))
    SimpleITK.WriteImage(SimpleITK.JoinSeries([image, image]), str(tmp_path / "cine.nii.gz"))
    assert main(["view", str(tmp_path / "cine.nii.gz")]) == 0
    assert "2 channels or time points; the page shows" in capsys.readouterr().err
    assert main(["view", str(written(tmp_path))]) == 0
    assert capsys.readouterr().err == ""


def test_a_missing_scan_is_one_line(shown, tmp_path, capsys):
    assert main(["view", str(tmp_path / "none.nii.gz")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not shown


def test_without_a_scan_a_generated_one_is_shown_with_its_dicom(shown):
    assert main(["view"]) == 0
    # Its files are gone with the command.
    assert not shown["scan"].source.files[0].exists()
    assert parser_of("view").parse_args(["view"]).image is None


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="a console is needed to send Ctrl+C")
def test_the_command_serves_page_and_scan_until_it_is_stopped(tmp_path):
    """The whole of it with the weights that ship."""
    command = [sys.executable, "-m", "pumit", "view", str(written(tmp_path)), "--no-browser"]
    root = str(Path(pumit.__file__).parents[1])
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    try:
        url = re.search(r"(http\S+)/view/", process.stdout.readline())[1]
        token = process.stdout.readline().rpartition(" ")[2].strip()
        assert requests.get(f"{url}/view/", timeout=10).status_code == 200
        headers = {"Authorization": f"Bearer {token}"}
        lease = requests.post(f"{url}/claim", headers=headers, timeout=10).json()
        headers["X-Lease-Token"] = lease["lease_token"]
        answer = requests.post(f"{url}/pumit/v3/scan", headers=headers, timeout=60)
        assert answer.content[:4] == (348).to_bytes(4, "little")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.communicate()
