"""The views that a test has open, found by layout name."""

from harness.views.slice_view import SliceView
from harness.views.three_d_view import ThreeDView

_open: dict[str, SliceView | ThreeDView] = {}
# As Slicer's default layout turns them.
_ORIENTATIONS = {"Red": "Axial", "Green": "Coronal", "Yellow": "Sagittal"}
_SIZE = (500, 400)


def add(view: SliceView | ThreeDView) -> None:
    """Remember a view; one of the same name is closed."""
    before = _open.pop(view.name, None)
    if before is not None:
        before.close()
    _open[view.name] = view


def sliceView(name: str) -> SliceView:
    """The slice view of a name, opened where it is not."""
    if name not in _open:
        _open[name] = SliceView(name, _ORIENTATIONS.get(name, "Axial"), _SIZE)
    return _open[name]


def sliceViewIfOpen(name: str) -> SliceView | None:
    """The slice view of a name, or None where it is not open."""
    view = _open.get(name)
    return view if isinstance(view, SliceView) else None


def threeDView(name: str) -> ThreeDView:
    """The 3D view of a name, opened where it is not."""
    if name not in _open:
        _open[name] = ThreeDView(name, _SIZE)
    return _open[name]


def everything() -> list[SliceView | ThreeDView]:
    """Every open view, in the order of opening."""
    return list(_open.values())


def closeAll() -> None:
    """Close every view."""
    while _open:
        _open.popitem()[1].close()
