"""The rules of the design: contracts in `pyproject.toml`, and what those cannot say."""

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import numpy as np
import pytest
import SimpleITK
from tracked_files import tracked_files

MODULE = Path(__file__).resolve().parent.parent / "PUMITSegment"
TRAIN_MODULE = MODULE.parent / "PUMITTrain"
PACKAGE = MODULE / "pumit"
FILES = sorted(PACKAGE.rglob("*.py"))

MODULE_IN_TEXT = re.compile(r"(pumit|PUMIT\w+Lib)(\.\w+)+")
TORCH_PARTS = {"preprocessing", "networks", "models", "inference", "training", "evaluation"}

GUI = [
    file
    for pattern in ("PUMIT*.py", "PUMIT*Lib/**/*.py")
    for folder in (MODULE, TRAIN_MODULE)
    for file in sorted(folder.glob(pattern))
]
# What a Slicer module may use: the worker and its client, and what they speak about.
GUI_MAY_IMPORT = {
    *("__init__", "errors", "geometry", "file_image", "volume", "prompts", "segmentation"),
    "system",
    *("client", "wire", "nninteractive", "gestures", "export", "io", "runs"),
    *("models", "structures"),  # names and cards, no weights
    "campaign",  # reads and changes files; trainings and predictions are processes
    "followup",  # registers; a session answers
}


def part_of(file: Path) -> str:
    """`io` of pumit/io/read.py, `errors` of pumit/errors.py."""
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def nodes_of(file: Path) -> list[ast.AST]:
    return list(ast.walk(tree_of(file)))


@cache
def imported(file: Path) -> frozenset[str]:
    """Full names of what a file imports, anywhere in it, and of modules named in its strings."""
    names: set[str] = set()
    for node in nodes_of(file):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.name} imports {node.module} by a relative name"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and MODULE_IN_TEXT.fullmatch(str(node.value)):
            # Such as a table of modules that are imported when they are needed.
            names.add(node.value)
    return frozenset(names)


def parts_imported(file: Path) -> set[str]:
    names = {name.split(".")[1] for name in imported(file) if name.startswith("pumit.")}
    return names & {part_of(file) for file in FILES}


def libraries_imported(file: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(file)}


def calls(file: Path) -> list[ast.Call]:
    return [node for node in nodes_of(file) if isinstance(node, ast.Call)]


def called(call: ast.Call) -> str:
    return ast.unparse(call.func)


def loaded_by(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after a statement."""
    code = f"{statement}\nimport sys\nprint(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, cwd=MODULE, capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def offenders(files: list[Path], forbidden: set[str]) -> list[str]:
    """Files that import a library that they must not."""
    return [f"{f.name}: {x}" for f in files for x in sorted(libraries_imported(f) & forbidden)]


def test_the_contracts_hold():
    """In another process: import-linter switches off all loggers of the one that it runs in."""
    code = "import sys; from importlinter import cli; sys.exit(cli.lint_imports(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(MODULE.parent / "pyproject.toml")]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=paths)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_module_imports_itself_in_a_circle():
    """Not even inside of functions; `pumit` itself looks its names up when they are used."""
    graph = grimp.build_graph("pumit", cache_dir=None)
    TopologicalSorter(
        {m: graph.find_modules_directly_imported_by(m) - {"pumit"} for m in graph.modules}
    ).prepare()


def test_no_two_classes_share_a_name():
    """Also not in upper and lower case alone; private ones may."""
    homes: dict[str, list[str]] = {}
    for file in FILES + GUI:
        for node in nodes_of(file):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name.lower(), []).append(f"{file.name}: {node.name}")
    # What tests replace of each of the two modules of Slicer.
    assert {name: here for name, here in homes.items() if len(here) > 1}.keys() == {"collaborators"}


def test_no_constant_of_a_module_is_assigned_twice():
    """The second value would hold for both purposes."""
    twice = []
    for file in FILES + GUI:
        names = Counter(
            target.id
            for node in tree_of(file).body
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name) and target.id.isupper()
        )
        twice += [f"{file.name}: {name}" for name, times in names.items() if times > 1]
    assert not twice


def test_only_the_parts_that_compute_import_torch():
    light = [file for file in FILES if part_of(file) not in TORCH_PARTS]
    assert not offenders(light, {"torch", "monai", "transformers"})


@pytest.mark.slow
def test_monai_is_imported_in_one_place_and_brings_no_transformers():
    assert not offenders([f for f in FILES if f.name != "monai.py"], {"monai"})
    assert "transformers" not in loaded_by("import pumit.networks.monai")


def test_networks_never_touch_files():
    reaching = {"os", "io", "pathlib", "shutil", "tempfile", "json", "yaml", "safetensors"}
    reaching |= {"requests", "urllib", "h5py", "zipfile", "huggingface_hub"}
    networks = [file for file in FILES if part_of(file) == "networks"]
    assert not offenders(networks, reaching)
    for file in networks:
        names = {called(call) for call in calls(file)}
        assert names.isdisjoint({"open", "torch.load", "torch.save", "np.load", "np.save"}), file
        public = (".from_pretrained", ".save_pretrained")
        assert not [name for name in names if name.endswith(public)], file


def test_gui_never_imports_what_computes():
    assert not offenders(GUI, {"torch", "monai", "transformers"})
    # Looked up at use, they bring torch along.
    looked_up = {"pumit.InteractiveSession", "pumit.load_segmenter", "pumit.find_structure"}
    for file in GUI:
        assert parts_imported(file) <= GUI_MAY_IMPORT, file
        assert imported(file).isdisjoint(looked_up), file


def test_registration_imports_only_slicer_at_file_scope():
    """Also in the base classes of both, the only file of ours that it may import."""
    base = MODULE / "PUMITSlicerLib" / "module_base.py"
    for file in (MODULE / "PUMITSegment.py", TRAIN_MODULE / "PUMITTrain.py", base):
        names = set()
        for node in tree_of(file).body:
            if isinstance(node, ast.ImportFrom):
                names.add(node.module or "")
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
        slicers = {"slicer", "qt", "ctk", "vtk"}
        names -= {"PUMITSlicerLib.module_base"}
        outside = {name.split(".")[0] for name in names} - slicers - set(sys.stdlib_module_names)
        assert not outside, file


def test_importing_the_package_imports_nothing_heavy():
    heavy = {"torch", "monai", "transformers", "SimpleITK", "pydicom", "highdicom", "scipy"}
    assert loaded_by("import pumit").isdisjoint(heavy | {"skimage", "matplotlib", "numpy"})


def test_what_a_gui_uses_of_the_server_imports_no_torch():
    modules = ("client.http_client", "client.remote_session", "client.worker")
    names = (*modules, "nninteractive.client.session")
    loaded = loaded_by("import " + ", ".join(f"pumit.{name}" for name in names))
    assert loaded.isdisjoint({"torch", "monai", "transformers", "fastapi"})


def test_a_campaign_is_opened_before_anything_is_installed():
    """A panel shows it in Slicer's own process."""
    loaded = loaded_by("import pumit.campaign")
    assert loaded.isdisjoint({"torch", "monai", "pydantic", "SimpleITK", "pydicom", "filelock"})


def test_a_scan_is_opened_before_arrays_are_packed():
    """blosc2 takes longer to load than everything else of a client, and clicks do without it."""
    modules = ("inference.interactive.session", "client.remote_session", "server.serve")
    assert "blosc2" not in loaded_by("import " + ", ".join(f"pumit.{name}" for name in modules))


@pytest.mark.parametrize("name", ["scan.nii", "scan.nii.gz", "scan.nrrd"])
def test_a_scan_that_is_no_dicom_is_read_without_pydicom(name, tmp_path):
    """It takes longer to load than such a scan does."""
    image = SimpleITK.GetImageFromArray(np.zeros((3, 4, 5), np.int16))
    SimpleITK.WriteImage(image, tmp_path / name)
    path = str(tmp_path / name)
    assert "pydicom" not in loaded_by(f"import pumit; pumit.Volume.read({path!r})")


def test_nothing_is_ever_unpickled():
    unsafe = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    for file in FILES + GUI:
        assert libraries_imported(file).isdisjoint(unsafe), file
        for call in calls(file):
            assert called(call) not in {"torch.jit.load", "pd.read_pickle"}, file
            assert called(call) not in {"yaml.load", "yaml.full_load", "yaml.unsafe_load"}, file
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
            assert given.get("weights_only") != "False", file
            if called(call) == "torch.load":  # of public weights alone, and nothing but tensors
                assert file.name == "public_weights.py", file
                assert given.get("weights_only") == "True", file
            assert given.get("allow_pickle", "False") == "False", file


def test_no_file_is_a_dumping_ground(repository):
    grounds = {"util", "utils", "helper", "helpers", "misc", "common"}
    paths = [file.relative_to(repository) for file in tracked_files(repository)]
    assert not [path for path in paths if grounds & {Path(p).stem.lower() for p in path.parts}]
