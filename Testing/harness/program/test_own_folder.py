import os
import subprocess
import sys
from pathlib import Path

_PROGRAM = """
from harness.program.own_folder import ownFolder
home, cache = ownFolder("home"), ownFolder("cache")
assert ownFolder("home") == home != cache and home.is_dir()
(home / "left").touch()
"""


def test_folders_of_a_process_go_with_it(tmp_path: Path) -> None:
    testing = str(Path(__file__).parents[2])
    environment = {**os.environ, "TMPDIR": str(tmp_path), "TEMP": str(tmp_path)}
    subprocess.run([sys.executable, "-c", _PROGRAM], cwd=testing, env=environment, check=True)
    assert not list(tmp_path.iterdir())
