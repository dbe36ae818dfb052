"""A Python that has no PyTorch, for separate processes."""

# What an environment without the packages would do, in its own process.
WITHOUT = """
import importlib.util, sys
ABSENT = {"torch", "monai", "einops"}
found = importlib.util.find_spec
importlib.util.find_spec = lambda n, p=None: None if n.split(".")[0] in ABSENT else found(n, p)
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""
