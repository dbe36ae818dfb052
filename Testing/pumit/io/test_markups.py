"""Slicer's markups and our own JSON become prompts in LPS millimetres."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pumit.errors import PromptError
from pumit.io.markups import read_markups
from pumit.prompts import BoxPrompt, PointPrompt, ScribblePrompt

SCHEMA = (
    "https://raw.githubusercontent.com/slicer/slicer/master/Modules/Loadable/Markups/Resources/"
    "Schema/markups-schema-v1.0.3.json#"
)


def control_point(position: list[float], label: str = "F-1", **more: Any) -> dict[str, Any]:
    return {"id": "1", "label": label, "description": "", "position": position, **more}


def markup(kind: str = "Fiducial", system: Any = "LPS", **more: Any) -> dict[str, Any]:
    return {"type": kind, "coordinateSystem": system, "coordinateUnits": "mm", **more}


def write(tmp_path: Path, *markups: Any, name: str = "F.mrk.json") -> Path:
    path = tmp_path / name
    path.write_text(json.dumps({"@schema": SCHEMA, "markups": list(markups)}))
    return path


def refused(path: Path, reason: str) -> None:
    with pytest.raises(PromptError, match=reason) as caught:
        read_markups(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        (None, (1, 2, 3)),  # unstated: LPS, as in Slicer
        ("lps", (1, 2, 3)),
        ("RAS", (-1, -2, 3)),
        ("0", (-1, -2, 3)),
        (1, (1, 2, 3)),
    ],
)
def test_coordinate_system_is_respected(tmp_path, system, expected):
    data = markup(system=system, controlPoints=[control_point([1, 2, 3])])
    if system is None:
        del data["coordinateSystem"]
    assert read_markups(write(tmp_path, data)) == [PointPrompt(expected)]


@pytest.mark.parametrize(
    ("label", "description", "is_positive"),
    [
        ("F-1", "", True),
        ("neg 3", "", False),
        ("Negative", "", False),
        ("-", "", False),
        ("F-2", "this is background", False),
        ("F-2", "nonnegative", True),
        ("Lesion negative-1", "", False),
    ],
)
def test_words_make_a_point_negative(tmp_path, label, description, is_positive):
    point = control_point([1, 2, 3], label)
    point["description"] = description
    path = write(tmp_path, markup(controlPoints=[point]))
    assert read_markups(path) == [PointPrompt((1, 2, 3), is_positive)]


def test_name_of_the_list_makes_all_its_points_negative(tmp_path):
    data = markup(controlPoints=[control_point([1, 2, 3])])
    by_file = write(tmp_path, data, name="Background points.mrk.json")
    assert read_markups(by_file) == [PointPrompt((1, 2, 3), is_positive=False)]
    by_name = write(tmp_path, {**data, "name": "negative"}, data)
    assert [p.is_positive for p in read_markups(by_name)] == [False, True]  # type: ignore[union-attr]


def test_points_that_were_never_placed_are_passed_over(tmp_path):
    points = [
        control_point([0, 0, 0], positionStatus="undefined"),
        control_point([1, 2, 3], positionStatus="defined"),
        control_point([4, 5, 6], positionStatus="preview"),
    ]
    assert read_markups(write(tmp_path, markup(controlPoints=points))) == [PointPrompt((1, 2, 3))]


# A box as Slicer 5.13 writes it: turned about X and Z, RAS corner known from vtkTransform.
ROI = {
    "roiType": "Box",
    "center": [-5.0, -6.0, 7.0],
    "orientation": [
        -0.8660254037844386, 0.4999999999999999, -0.0,
        -0.4698463103929541, -0.8137976813493737, 0.34202014332566866,
        0.1710100716628343, 0.2961981327260238, 0.9396926207859083,
    ],
    "size": [10.0, 20.0, 30.0],
    "insideOut": False,
}  # fmt: skip


def test_rotated_region_of_interest_becomes_its_eight_corners(tmp_path):
    [box] = read_markups(write(tmp_path, markup("ROI", **ROI)))
    corners = np.asarray(box.corners_lps)
    assert corners.shape == (8, 3)
    corner_ras = (4.330127018922194, 11.356906215573478, 24.912420997363036)
    distance = np.linalg.norm(corners - np.array(corner_ras) * (-1, -1, 1), axis=1)
    assert distance.min() < 1e-9
    edges = np.unique(np.round(np.linalg.norm(corners - corners[0], axis=1), 6))
    assert {10.0, 20.0, 30.0} <= set(edges)


def test_region_in_ras_is_mirrored(tmp_path):
    data = markup("ROI", "RAS", center=[10, 20, 30], size=[2, 4, 6])
    [box] = read_markups(write(tmp_path, data))
    corners = np.asarray(box.corners_lps)
    np.testing.assert_array_equal(corners.min(axis=0), (-11, -22, 27))
    np.testing.assert_array_equal(corners.max(axis=0), (-9, -18, 33))


@pytest.mark.parametrize("kind", ["Curve", "ClosedCurve", "Line"])
def test_curves_become_scribbles(tmp_path, kind):
    for label in ("F", "Background"):
        points = [control_point([k, 0, 0], f"{label}-{k}") for k in range(3)]
        [scribble] = read_markups(write(tmp_path, markup(kind, controlPoints=points)))
        expected = [(0, 0, 0), (1, 0, 0), (2, 0, 0)] + [(0, 0, 0)] * (kind == "ClosedCurve")
        assert scribble == ScribblePrompt(tuple(expected), is_positive=label == "F")


@pytest.mark.parametrize("is_wrapped", [True, False])
def test_own_prompts_are_read_back(tmp_path, is_wrapped):
    prompts = [
        PointPrompt((1, 2, 3), is_positive=False),
        BoxPrompt.from_bounds((0, 0, 0), (1, 2, 3)),
        ScribblePrompt(((0, 0, 0), (1, 1, 1))),
    ]
    dicts = [p.to_dict() for p in prompts]
    (tmp_path / "p.json").write_text(json.dumps({"prompts": dicts} if is_wrapped else dicts))
    assert read_markups(tmp_path / "p.json") == prompts


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not valid JSON"),
        ('{"markups": [}', "line 1, column 14"),
        ("42", "neither"),
        ("{}", "neither"),
        ("[]", "no placed point"),
        ("[1]", "must be a JSON object"),
        ('[{"kind": "lasso"}]', "Unknown prompt kind"),
        ('[{"kind": "point", "point_lps": [1, 2]}]', "three"),
        ('[{"kind": "point", "point_lps": [1, 2, NaN]}]', "finite"),
        ('{"markups": []}', "no placed point"),
        ('{"markups": 3}', "lacks a field"),
        ('{"markups": [3]}', "lacks a field"),
        ('{"markups": [{"type": "Fiducial"}]}', "no placed point"),
        ('{"markups": [{"type": "Curve", "controlPoints": []}]}', "no placed point"),
        ('{"markups": [{"type": "Plane"}]}', "'Plane' cannot be prompts"),
        ('{"markups": [{"type": "ROI", "center": [0, 0, 0]}]}', "lacks a field"),
        ('{"markups": [{"type": "ROI", "center": [0,0,0], "size": [0,0,0]}]}', "no size"),
        ('{"markups": [{"type": "ROI", "insideOut": true}]}', "inside-out"),
        ('{"markups": [{"type": "Fiducial", "coordinateSystem": "XYZ"}]}', "LPS or RAS"),
        ('{"markups": [{"type": "Fiducial", "coordinateUnits": "m"}]}', "must be in mm"),
        (
            '{"markups": [{"type": "Fiducial", "controlPoints": [{"position": [1, 2]}]}]}',
            "lacks a field",
        ),
    ],
)
def test_bad_file_is_refused_in_one_line(tmp_path, text, reason):
    (tmp_path / "p.json").write_text(text)
    refused(tmp_path / "p.json", reason)


def test_missing_file_folder_and_bytes_are_refused(tmp_path):
    refused(tmp_path / "no.json", "no prompt file 'no.json'")
    refused(tmp_path, "cannot be read")
    (tmp_path / "p.json").write_bytes(b"\xff\xfe\x00\x80")
    refused(tmp_path / "p.json", "not JSON text")
    (tmp_path / "p.json").write_text("[" * 100_000)
    refused(tmp_path / "p.json", "JSON")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            ["markups", "type", "controlPoints", "position", "center", "size", "orientation",
             "coordinateSystem", "kind", "point_lps", "corners_lps", "points_lps", "prompts"]
        ),
        inner | st.sampled_from(["Fiducial", "ROI", "Curve", "point", "box", "scribble"]),
        max_size=5,
    ),
    max_leaves=20,
)  # fmt: skip


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(json_values)
def test_any_json_gives_prompts_or_a_prompt_error(tmp_path, value):
    (tmp_path / "p.json").write_text(json.dumps(value))
    message = "reason"
    try:
        assert read_markups(tmp_path / "p.json")
    except PromptError as error:
        message = str(error)
    assert "\n" not in message


@pytest.mark.slicer
def test_what_slicer_writes_is_read(tmp_path):
    slicer = pytest.importorskip("slicer_core", reason="slicer-core is not installed")
    vtk = pytest.importorskip("vtk")
    scene = slicer.vtkMRMLScene()
    points = slicer.vtkMRMLMarkupsFiducialNode()
    points.SetName("negative")
    scene.AddNode(points)
    points.AddControlPoint(vtk.vtkVector3d(1, 2, 3))
    storage = slicer.vtkMRMLMarkupsJsonStorageNode()
    scene.AddNode(storage)
    storage.SetFileName(str(tmp_path / "p.mrk.json"))
    assert storage.WriteData(points)
    assert read_markups(tmp_path / "p.mrk.json") == [PointPrompt((-1, -2, 3), is_positive=False)]


def test_units_may_be_a_code(tmp_path):
    """As the schema allows: value, scheme and meaning."""
    given = markup(controlPoints=[control_point([1, 2, 3])])
    given["coordinateUnits"] = ["mm", "UCUM", "millimeter"]
    assert read_markups(write(tmp_path, given)) == [PointPrompt((1.0, 2.0, 3.0))]
    given["coordinateUnits"] = ["cm", "UCUM", "centimeter"]
    refused(write(tmp_path, given), "must be in mm, got 'cm'")
