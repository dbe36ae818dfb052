"""What the reviewers of Slicer's Extensions Index ask, beyond the checks of `test_catalogue.py`.

Their questions: scripts/extension_ai_analysis.py and the pull request template of
Slicer/ExtensionsIndex.
"""

import ast
import re
import sys

import yaml

MODULES = ("PUMITSegment", "PUMITTrain")
# What Slicer brings, and what is ours.
ALLOWED = {"slicer", "vtk", "qt", "ctk", "numpy", "SimpleITK", "scipy"}


def test_the_panels_import_at_file_scope_only_what_slicer_has(repository):
    """Not the core below them, which a separate process runs, once it is installed."""
    for module in MODULES:
        for file in (repository / module).rglob("*.py"):
            if "pumit" in file.relative_to(repository).parts:
                continue
            roots = set()
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                roots |= {name.split(".")[0] for name in names}
            ours = {name for name in roots if name.startswith("PUMIT") or name == "pumit"}
            assert roots - set(sys.stdlib_module_names) - ours <= ALLOWED, file


def test_a_module_file_runs_nothing_at_file_scope(repository):
    for module in MODULES:
        tree = ast.parse((repository / module / f"{module}.py").read_text(encoding="utf-8"))
        for node in tree.body:
            is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            declares = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.Assign)
            is_guarded = isinstance(node, (ast.If, ast.AnnAssign, ast.Try))
            assert is_text or is_guarded or isinstance(node, declares), (module, node.lineno)


def test_nothing_installs_torch_by_pip(repository):
    for module in MODULES:
        for file in (repository / module).rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            assert not re.search(r"pip_install\([^)]*torch", text), file


def test_addresses_that_are_fetched_have_a_checksum(repository):
    index = repository / "PUMITSegment" / "pumit" / "models" / "index.yaml"
    for model in yaml.safe_load(index.read_text(encoding="utf-8"))["models"]:
        assert re.fullmatch(r"[0-9a-f]{64}", model["sha256"]), model["name"]
        assert model["licence"]
    sample = repository / "PUMITSegment" / "PUMITSegmentLib" / "sample_data.py"
    text = sample.read_text(encoding="utf-8")
    assert text.count("SHA256:") >= 1
