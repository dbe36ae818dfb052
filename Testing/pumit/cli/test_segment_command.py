"""`pumit segment` writes what was requested, or one line and nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pydicom
import pytest
import SimpleITK
from hypothesis import given
from hypothesis import strategies as st
from pumit.cli.segment import parse_numbers, ras_to_lps
from pumit.errors import PromptError
from pumit.evaluation.metrics import dice
from pumit.export.dicom_series import write_dicom_series
from pumit.volume import Volume


def truth(scan: Path) -> np.ndarray:
    return SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(scan))) > 50


@pytest.mark.usefixtures("bright")
@pytest.mark.parametrize("name", ["out.nii.gz", "out.mha", "out.seg.nrrd"])
def test_a_click_writes_the_mask_on_the_scans_grid(run, scan, inside, tmp_path, name):
    assert inside.startswith("-")
    ran = run("segment", scan, "--point", inside, "-o", tmp_path / name)
    assert ran.err == ""
    assert "mL, not rated" in ran.out
    written, source = (SimpleITK.ReadImage(str(p)) for p in (tmp_path / name, scan))
    mask = SimpleITK.GetArrayFromImage(written).squeeze() > 0
    if mask.shape == truth(scan).shape:  # a .seg.nrrd holds the segment's box alone
        assert dice(mask, truth(scan)) > 0.95
        np.testing.assert_allclose(written.GetOrigin(), source.GetOrigin(), atol=1e-3)
        np.testing.assert_allclose(written.GetDirection(), source.GetDirection(), atol=1e-4)
    np.testing.assert_allclose(written.GetSpacing(), source.GetSpacing(), atol=1e-4)
    assert int(mask.sum()) == pytest.approx(int(truth(scan).sum()), rel=0.1)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([name, "scan.nii.gz"])


@pytest.mark.usefixtures("bright")
def test_a_dicom_series_gives_a_dicom_seg_that_references_it(run, scan, tmp_path, inside):
    volume = write_dicom_series(Volume.read(scan), tmp_path / "series")
    out = tmp_path / "out.dcm"
    arguments = ["--terminology", "left kidney", "--name", "My kidney"]
    run("segment", tmp_path / "series", "--point", inside, *arguments, "-o", out)
    seg = pydicom.dcmread(out)
    assert seg.Modality == "SEG"
    referenced = seg.ReferencedSeriesSequence[0].SeriesInstanceUID
    assert referenced == volume.source.series_instance_uid
    assert seg.SegmentSequence[0].SegmentLabel == "My kidney"
    assert seg.SegmentSequence[0].SegmentAlgorithmType == "SEMIAUTOMATIC"


@pytest.mark.usefixtures("bright")
def test_a_time_point_is_chosen_or_the_first_one_named(run, refused, scan, inside, tmp_path):
    image = SimpleITK.ReadImage(str(scan))
    later = SimpleITK.CyclicShift(image, [4, 0, 0])
    together, out = tmp_path / "times.nii.gz", tmp_path / "out.nii.gz"
    SimpleITK.WriteImage(SimpleITK.JoinSeries([image, later]), str(together))
    first = run("segment", together, "--point", inside, "-o", out)
    assert first.err.startswith("The scan has 2 channels or time points; a model of one takes")
    masks = [Volume.read(out).array]
    ran = run("segment", together, "--point", inside, "--channel", 1, "-o", out)
    assert ran.err == ""
    masks.append(Volume.read(out).array)
    assert dice(masks[0] > 0, truth(scan)) > 0.95
    assert dice(masks[1] > 0, SimpleITK.GetArrayFromImage(later) > 50) > 0.95
    arguments = ["--point", inside, "--channel", 2]
    assert "there is no channel 2" in refused("segment", together, *arguments, "-o", out)


def test_another_answer_is_written(
    run, refused, scan, inside, tmp_path, monkeypatch, two_answers_segmenter
):
    monkeypatch.setattr(
        "pumit.inference.interactive.segmenter.load_segmenter",
        lambda *a, **k: two_answers_segmenter,
    )
    image = SimpleITK.ReadImage(str(scan))
    shell = np.zeros(truth(scan).shape)
    shell[2:11, 8:33, 10:39] = 50  # half as bright, around the ball
    voxels = np.maximum(SimpleITK.GetArrayFromImage(image), shell)
    changed = SimpleITK.GetImageFromArray(voxels.astype(np.int16))
    changed.CopyInformation(image)
    SimpleITK.WriteImage(changed, str(scan))
    out = tmp_path / "out.nii.gz"
    written = []
    for number in (1, 2):
        ran = run("segment", scan, "--point", inside, "--answer", number, "-o", out)
        assert f"answer {number} of 2" in ran.out
        written.append(SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(out))) > 0)
    assert written[0].sum() > 1.5 * written[1].sum()
    assert dice(written[1], voxels > 75) > 0.9
    ran = run("segment", scan, "--point", inside, "--answer", 2, "--json", "-o", out)
    assert [json.loads(ran.out)[key] for key in ("answer", "answers")] == [2, 2]
    error = refused("segment", scan, "--point", inside, "--answer", 3, "-o", out)
    assert "choose one from 1 to 2" in error
    error = refused("segment", scan, "--find", "liver", "--answer", 2, "-o", out)
    assert "leave out --answer" in error
    error = refused("segment", scan, "--find", "liver", "--check-here", "-o", out)
    assert "--check-here" in error


@pytest.mark.usefixtures("bright")
def test_json_is_one_valid_line(run, scan, inside, tmp_path):
    out = tmp_path / "out.nii.gz"
    picture = tmp_path / "picture.png"
    options = ["--terminology", "right kidney cyst", "--picture", picture, "--json"]
    ran = run("segment", scan, "--point", inside, *options, "-o", out)
    assert picture.read_bytes().startswith(b"\x89PNG")
    facts = json.loads(ran.out)
    assert facts["segment"] == "Right Kidney Cyst"
    mask = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(out)))
    assert facts["voxels"] == int(mask.sum())
    assert facts["volume_ml"] == pytest.approx(facts["voxels"] * 3 / 1000, abs=1e-3)
    assert 0 <= facts["estimated_iou"] <= 1
    assert facts["output"] == "out.nii.gz"


@pytest.mark.usefixtures("bright")
@pytest.mark.parametrize(("scale", "unit", "mm3"), [(0.02, "mm³", 1.0), (0.001, "µm³", 1e-9)])
def test_size_in_a_micro_ct_is_not_nothing(run, scan, tmp_path, scale, unit, mm3):
    image = SimpleITK.ReadImage(str(scan))
    image.SetSpacing([scale * s for s in image.GetSpacing()])
    small, out = tmp_path / "micro.nrrd", tmp_path / "out.nrrd"
    SimpleITK.WriteImage(image, str(small))
    options = (small, "--voxel", "24,20,6", "-o", out)
    facts = json.loads(run("segment", *options, "--json").out)
    expected = facts["voxels"] * 3 * scale**3
    assert facts["volume_ml"] == pytest.approx(expected / 1000, rel=1e-5)
    size, told = run("segment", *options).out.split(": ")[1].split(", ")[0].split()
    assert told == unit
    assert float(size.replace(",", "")) * mm3 == pytest.approx(expected, rel=1e-3)


@pytest.mark.usefixtures("bright")
def test_places_to_check_lie_on_the_segments_border(run, scan, inside, tmp_path):
    out = tmp_path / "out.nii.gz"
    ran = run("segment", scan, "--point", inside, "--check-here", "--json", "-o", out)
    places = json.loads(ran.out)["check_here"]
    assert places
    written = SimpleITK.ReadImage(str(out))
    mask = SimpleITK.GetArrayFromImage(written) > 0
    for place in places:
        r, a, s = place["point_ras"]
        w, h, d = written.TransformPhysicalPointToIndex((-r, -a, s))
        assert mask[d, h, w]
        assert not mask[max(d - 1, 0) : d + 2, max(h - 1, 0) : h + 2, max(w - 1, 0) : w + 2].all()
        assert 0 <= place["error_share"] == place["doubt"] <= 1
    ran = run("segment", scan, "--point", inside, "--check-here", "-o", out)
    assert ran.out.count("\ncheck ") == len(places)


@pytest.mark.usefixtures("bright")
@pytest.mark.parametrize(
    "prompts",
    [
        ["--voxel", "24,20,6"],
        ["--point", "24,20,6", "--frame", "IJK"],
        ["--box", "10,6,2,38,34,10", "--frame", "IJK"],
    ],
)
def test_voxels_are_column_row_and_slice(run, scan, tmp_path, prompts):
    run("segment", scan, *prompts, "-o", tmp_path / "o.nii.gz")
    mask = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(tmp_path / "o.nii.gz"))) > 0
    assert dice(mask, truth(scan)) > 0.95


@pytest.mark.usefixtures("bright")
def test_a_pixel_of_a_picture_is_column_and_row(run, refused, tmp_path):
    array = np.zeros((40, 60), np.uint8)
    array[10:30, 30:55] = 200
    SimpleITK.WriteImage(SimpleITK.GetImageFromArray(array), str(tmp_path / "photo.png"))
    line = refused("segment", tmp_path / "photo.png", "--point=70,20", "-o", tmp_path / "o.nii.gz")
    assert "The point 70, 20, 0 (i, j, k) is outside of the volume, which spans i 0 to 59" in line
    ran = run("segment", tmp_path / "photo.png", "--point=45,20", "-o", tmp_path / "o.nii.gz")
    assert "pixels" in ran.out
    mask = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(tmp_path / "o.nii.gz"))).squeeze()
    assert dice(mask > 0, array > 0) > 0.9


def test_every_kind_of_prompt_reaches_the_model(
    run, scan, inside, outside, tmp_path, tiny_checkpoint
):
    prompts = tmp_path / "prompts.json"
    lps = ras_to_lps([float(v) for v in inside.split(",")])
    prompts.write_text(json.dumps([{"kind": "point", "point_lps": lps}]))
    r, a, s = (float(v) for v in inside.split(","))
    box = f"{r - 8},{a - 8},{s - 8},{r + 8},{a + 8},{s + 8}"
    common = ["segment", scan, "--model", tiny_checkpoint, "--device", "cpu"]
    for k, given_prompts in enumerate(
        (
            ["--box", box],
            ["--prompts", prompts],
            ["--point", inside, "--negative", outside],
            ["--box", box, "--prompts", prompts, "--point", inside, "--negative", outside],
        )
    ):
        ran = run(*common, *given_prompts, "-o", tmp_path / f"{k}.nii.gz", status=None)
        # A random network may answer with nothing; then it says so.
        assert not ran.err or "finds nothing" in ran.err


def bad_prompts(scan: Path, inside: str, outside: str) -> list[tuple[list[str], str]]:
    r, a, s = inside.split(",")
    return [
        ([], "No prompt is given"),
        (["--point", "1,2"], "--point needs 3 numbers in a volume"),
        (["--point", ""], "an argument is empty"),
        (["--point", "nan,1,2"], "finite"),
        (["--negative", "inf,1,2"], "finite"),
        (["--point", "9999,0,0"], "outside of the volume"),
        (["--point", inside, "--negative", "0,0,9999"], "outside"),
        (["--negative", outside], "only negative"),
        (["--box", "1,2,3"], "--box needs 6 numbers"),
        (["--box", f"{inside},{inside}"], "no size"),
        (["--box", f"{inside},{r},{a},{float(s) + 9}"], "no size"),
        (["--box", "900,900,900,950,950,950"], "outside"),
        (["--prompts", "none.mrk.json"], "no prompt file"),
        (["--prompts", str(scan)], "prompt file"),
    ]


def test_unusable_prompts_and_options_are_one_line(
    refused, scan, inside, outside, tmp_path, tiny_checkpoint
):
    click = ["--point", inside]
    for arguments, reason in (
        *bad_prompts(scan, inside, outside),
        ([*click, "--model", "none"], "Unknown model"),
        ([*click, "--model", "none.safetensors"], "no checkpoint"),
        ([*click, "--device", "gpu"], "device"),
        ([*click, "--device", "cuda:77"], "evice"),
        ([*click, "--terminology", "livver"], "liver"),
        ([*click, "--terminology", "XYZ:1"], "not in the table"),
        ([*click, "--terminology", "a~b"], ""),
        ([*click, "--name", "x" * 100], "64"),
        ([*click, "--picture", "none/picture.png"], "does not exist"),
        ([*click, "--picture", "picture.jpg"], "--picture writes PNG"),
    ):
        out, model = tmp_path / "o.nii.gz", ["--model", tiny_checkpoint]
        line = refused("segment", scan, *model, *arguments, "-o", out)
        assert reason in line, arguments


def test_unusable_targets_are_found_before_the_scan_is_read(
    refused, scan, inside, tmp_path, monkeypatch
):
    def read(*args: object, **kwargs: object) -> Volume:
        raise AssertionError("the scan was read")

    (tmp_path / "folder.nii.gz").mkdir()
    protected, access = tmp_path / "protected.nii.gz", os.access
    protected.touch()
    # Not by its mode, which root may ignore.
    monkeypatch.setattr(os, "access", lambda path, mode: path != protected and access(path, mode))
    monkeypatch.setattr(Volume, "read", read)
    for output, reason in (
        ("o.png", "Unknown output format"),
        ("o", "Unknown output format"),
        ("none/o.nii.gz", "does not exist"),
        ("scan.nii.gz/o.nii.gz", "is a file, not a folder"),
        ("protected.nii.gz", "is write-protected"),
        ("folder.nii.gz", "is a folder"),
    ):
        assert reason in refused("segment", scan, "--point", inside, "-o", tmp_path / output)


@pytest.mark.usefixtures("bright")
def test_a_result_replaces_no_scan(refused, scan, inside, tmp_path):
    series = tmp_path / "series"
    write_dicom_series(Volume.read(scan), series)
    link, out, slice_ = tmp_path / "link.nii.gz", tmp_path / "o.nii.gz", next(series.iterdir())
    link.symlink_to(scan)
    before = scan.read_bytes(), slice_.read_bytes()
    for image, options in (
        (scan, ["-o", scan]),
        (scan, ["-o", link]),
        (scan, ["-o", out, "--picture", scan]),
        (scan, ["-o", out, "--picture", out]),
        (series, ["-o", slice_]),
    ):
        assert "another name" in refused("segment", image, "--point", inside, *options)
    assert (scan.read_bytes(), slice_.read_bytes()) == before


def test_a_scan_that_is_missing_or_flat_is_one_line(refused, tmp_path, tiny_checkpoint):
    out = tmp_path / "o.nii.gz"
    rest = ["--point", "-2,-2,2", "--model", tiny_checkpoint, "-o", out]
    assert "no file" in refused("segment", tmp_path / "none.nii.gz", *rest)
    flat = tmp_path / "flat.nii.gz"
    SimpleITK.WriteImage(SimpleITK.GetImageFromArray(np.full((4, 8, 8), 3, np.int16)), str(flat))
    assert "same value (3)" in refused("segment", flat, *rest)


def test_a_damaged_checkpoint_is_one_line(refused, scan, inside, tmp_path, tiny_checkpoint):
    tiny_checkpoint.write_bytes(tiny_checkpoint.read_bytes()[:-500])
    out = tmp_path / "o.nii.gz"
    refused("segment", scan, "--point", inside, "--model", tiny_checkpoint, "-o", out)


@given(st.text(max_size=30), st.integers(1, 6))
def test_any_text_gives_numbers_or_a_prompt_error(text, count):
    try:
        values = parse_numbers(text, count, "--x")
    except PromptError as error:
        message = str(error)
    else:
        assert len(values) == count == text.count(",") + 1
        return
    assert message.startswith("--x needs")
    assert "\n" not in message


def test_a_first_point_that_finds_a_great_deal_says_so(
    run, scan, inside, outside, tmp_path, monkeypatch, bright, bright_segmenter
):
    from pumit.inference.interactive import session as session_module
    from pumit.models.overlap import OverlapModel

    doubtful = {bright_segmenter.sha256: OverlapModel({"constant": -3.0}, 0.88, 0.7, 0.5)}
    monkeypatch.setattr(session_module, "overlap_models", lambda: doubtful)
    monkeypatch.setattr("pumit.segmentation._LARGE_ML", 0.01)
    out = tmp_path / "out.nrrd"
    ran = run("segment", scan, "--point", inside, "-o", out)
    assert "unreliable, expected Dice 0.0" in ran.out
    assert ran.err == ("This may be more than you meant: draw a box, or give more points.\n")
    ran = run("segment", scan, "--point", inside, "-o", out, "--json")
    printed = json.loads(ran.out)
    assert (printed["quality"], len(printed["remarks"])) == ("unreliable", 1)
    more = run("segment", scan, "--point", inside, "--negative", outside, "-o", out)
    assert "more than you meant" not in more.err


SEGMENT_AND_TELL = """
import sys
from pumit.cli.main import main
assert main(sys.argv[1:]) == 0
print(*{"torch", "SimpleITK", "rich", "scipy.spatial"} & set(sys.modules))
"""


def test_a_series_is_segmented_without_what_it_does_not_need(scan, tmp_path):
    """Each of these takes a twentieth of a second and more to import."""
    write_dicom_series(Volume.read(scan), tmp_path / "series")
    command = [sys.executable, "-c", SEGMENT_AND_TELL, "segment", str(tmp_path / "series")]
    command += ["--voxel", "24,20,6", "--json", "-o", str(tmp_path / "out.seg.nrrd")]
    environment = {**os.environ, "PUMIT_MODELS": str(tmp_path / "models"), "PUMIT_ENGINE": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    facts, loaded = done.stdout.splitlines()
    assert json.loads(facts)["voxels"] > 0
    assert loaded == ""


def test_a_point_outside_waits_for_no_graph(refused, scan, tmp_path, monkeypatch, bright):
    rested: list[object] = []
    monkeypatch.setattr(
        "pumit.inference.engine.torch_engine.TorchEngine.rest", lambda engine: rested.append(engine)
    )
    refused("segment", scan, "--voxel", "24,20,60", "-o", tmp_path / "out.nii.gz")
    assert len(rested) == 1
