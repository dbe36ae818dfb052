"""Holds the design's rules by reading what every file imports and calls."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tracked_files import tracked_files

MODULE = Path(__file__).resolve().parent.parent / "PUMITSegment"
PACKAGE = MODULE / "pumit"
FILES = sorted(PACKAGE.rglob("*.py"))

# What all may import.
BASE = {"__init__", "errors", "volume", "prompts", "segmentation"}
# Data flows io -> preprocessing -> networks -> inference -> export; training and evaluation lie
# beside, server and cli on top. Each part may import the parts named here, and the base.
_CORE = {"io", "preprocessing", "networks", "models", "inference"}
MAY_IMPORT: dict[str, set[str]] = {
    "io": set(),
    "middle_line": set(),
    "drawn_areas": {"middle_line"},
    "drawn_prompts": {"drawn_areas", "middle_line"},
    "preprocessing": {"io"},
    "networks": {"preprocessing"},
    "models": {"io", "networks"},
    "inference": {"io", "preprocessing", "networks", "models"},
    "export": {"io"},
    "evaluation": _CORE | {"export", "drawn_prompts"},
    "training": _CORE | {"export", "evaluation"},
    "server": _CORE | {"export", "drawn_prompts"},
    "cli": _CORE | {"export", "evaluation", "training", "server"},
    "__main__": {"cli"},
}
# Names that the base looks up only when they are asked for: `pumit.InteractiveSession`,
# `pumit.load_segmenter` and `Volume.read`.
LOOKED_UP = {"__init__": {"inference"}, "volume": {"io"}}
TORCH_PARTS = {"preprocessing", "networks", "models", "inference", "training", "evaluation"}

GUI = [
    file
    for pattern in ("PUMIT*.py", "PUMIT*Lib/**/*.py")
    for folder in (MODULE, MODULE.parent / "PUMITTrain")
    for file in sorted(folder.glob(pattern))
]
# What a Slicer module may use: the worker and its client, and what they speak about.
GUI_MAY_IMPORT = BASE | {"server", "export", "io", "middle_line"}


def part_of(file: Path) -> str:
    """`io` of pumit/io/read.py, `errors` of pumit/errors.py."""
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(file: Path) -> set[str]:
    """Full names of what a file imports, anywhere in it, and of modules named in its strings."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.name} imports {node.module} by a relative name"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and re.fullmatch(r"pumit(\.\w+)+", str(node.value)):
            # Such as a table of modules that are imported when they are needed.
            names.add(node.value)
    return names


def parts_imported(file: Path) -> set[str]:
    names = {name.split(".")[1] for name in imported(file) if name.startswith("pumit.")}
    return names & {part_of(file) for file in FILES}


def libraries_imported(file: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(file)}


def calls(file: Path) -> list[ast.Call]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def called(call: ast.Call) -> str:
    return ast.unparse(call.func)


def named(files: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "file", files, ids=[file.relative_to(MODULE.parent).as_posix() for file in files]
    )


def loaded_by(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after a statement."""
    code = f"{statement}\nimport sys\nprint(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, cwd=MODULE, capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_rules_cover_every_part_of_the_package() -> None:
    assert {part_of(file) for file in FILES} == BASE | set(MAY_IMPORT)


@named(FILES)
def test_data_flows_one_way(file: Path) -> None:
    part = part_of(file)
    allowed = MAY_IMPORT.get(part, set()) | BASE | {part} | LOOKED_UP.get(part, set())
    assert parts_imported(file) <= allowed


@named([file for file in FILES if part_of(file) not in TORCH_PARTS])
def test_only_the_parts_that_compute_import_torch(file: Path) -> None:
    assert libraries_imported(file).isdisjoint({"torch", "monai", "transformers"})


@named([file for file in FILES if part_of(file) == "networks"])
def test_networks_never_touch_files(file: Path) -> None:
    reaching = {"os", "io", "pathlib", "shutil", "tempfile", "json", "yaml", "safetensors"}
    reaching |= {"requests", "urllib", "h5py", "zipfile", "huggingface_hub"}
    assert libraries_imported(file).isdisjoint(reaching)
    names = {called(call) for call in calls(file)}
    assert names.isdisjoint({"open", "torch.load", "torch.save", "np.load", "np.save"})
    assert not [name for name in names if name.endswith((".from_pretrained", ".save_pretrained"))]


@named(GUI)
def test_gui_never_imports_what_computes(file: Path) -> None:
    assert libraries_imported(file).isdisjoint({"torch", "monai", "transformers"})
    assert parts_imported(file) <= GUI_MAY_IMPORT
    # Looked up at use, they bring torch along.
    looked_up = {"pumit.InteractiveSession", "pumit.load_segmenter"}
    assert imported(file).isdisjoint(looked_up)


@named([file for file in GUI if file.parent.name in {"PUMITSegment", "PUMITTrain"}])
def test_registration_imports_only_slicer_at_file_scope(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    at_scope = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = set()
    for node in at_scope:
        names |= {node.module or ""} if isinstance(node, ast.ImportFrom) else set()
        names |= {a.name for a in node.names} if isinstance(node, ast.Import) else set()
    slicers = {"slicer", "qt", "ctk", "vtk"}
    outside = {name.split(".")[0] for name in names} - slicers - set(sys.stdlib_module_names)
    assert not outside


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = {"torch", "monai", "transformers", "SimpleITK", "pydicom", "highdicom", "scipy"}
    assert loaded_by("import pumit").isdisjoint(heavy | {"skimage", "matplotlib", "numpy"})


@pytest.mark.parametrize(
    "name", ["client", "remote_session", "foreign_session", "worker", "protocol"]
)
def test_what_a_gui_uses_of_the_server_imports_no_torch(name: str) -> None:
    loaded = loaded_by(f"import pumit.server.{name}")
    assert loaded.isdisjoint({"torch", "monai", "transformers", "fastapi"})


def test_nothing_is_ever_unpickled() -> None:
    unsafe = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    for file in FILES + GUI:
        assert libraries_imported(file).isdisjoint(unsafe), file
        for call in calls(file):
            assert called(call) not in {"torch.jit.load", "pd.read_pickle"}, file
            assert called(call) not in {"yaml.load", "yaml.full_load", "yaml.unsafe_load"}, file
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
            assert given.get("weights_only") != "False", file
            if called(call) == "torch.load":  # of public weights alone, and nothing but tensors
                assert file.name == "swin_unetr_file.py", file
                assert given.get("weights_only") == "True", file
            assert given.get("allow_pickle", "False") == "False", file


def test_python_files_are_short(repository: Path) -> None:
    lengths = {
        file.relative_to(repository).as_posix(): len(file.read_text(encoding="utf-8").splitlines())
        for file in tracked_files(repository)
        if file.suffix == ".py"
    }
    assert not {name: length for name, length in lengths.items() if length > 400}


def test_no_file_is_a_dumping_ground(repository: Path) -> None:
    grounds = {"util", "utils", "helper", "helpers", "misc", "common"}
    paths = [file.relative_to(repository) for file in tracked_files(repository)]
    assert not [path for path in paths if grounds & {Path(p).stem.lower() for p in path.parts}]
