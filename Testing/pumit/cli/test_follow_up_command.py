"""`pumit follow-up`: lesions of one scan in a later one, as files and a table."""

import io
import json
import re
import shutil
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pumit
import pydicom
import pytest
import SimpleITK
from label_objects_made import write_bundle
from pumit.cli.follow_up import _short
from pumit.export.dicom_series import write_dicom_series
from pumit.export.seg_nrrd import write_seg_nrrd
from pumit.export.volume_file import write_volume_file
from pumit.io.labels.label_source import read_labels
from pumit.segmentation import Algorithm, Segment, Segmentation
from pumit.volume import Volume

Run = Callable[..., Any]
FILES = [
    "follow-up.csv",
    "follow-up.json",
    "later.seg.nrrd",
    "registration.png",
    "registration.tfm",
]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from pumit.cli.main import main

    folder = tmp_path_factory.mktemp("dates")
    assert main(["sample", "follow-up", str(folder)]) == 0
    return folder


def scans(sample: Path) -> tuple[Path, Path, Path]:
    return sample / "earlier.nii.gz", sample / "earlier.seg.nrrd", sample / "later.nii.gz"


@pytest.fixture(scope="module")
def compared(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Both dates registered once: the folder of the result, and what was printed."""
    from pumit.cli.main import main

    folder = tmp_path_factory.mktemp("compared")
    given = ("--later-mask", sample / "later.seg.nrrd", "-o", folder, "--json")
    with redirect_stdout(io.StringIO()) as printed:
        assert main(["follow-up", *map(str, (*scans(sample), *given))]) == 0
    return folder, json.loads(printed.getvalue())


@pytest.fixture
def registered(compared: tuple[Path, Any]) -> tuple[str | Path, ...]:
    return "--registration", compared[0] / "registration.tfm"


@pytest.mark.slow
@pytest.mark.usefixtures("blank_pictures")
def test_lesions_are_answered_at_the_next_date(run, sample, registered, tmp_path):
    truth = read_labels(sample / "later.seg.nrrd", Volume.read(sample / "later.nii.gz"))
    new = next(s for s in truth.segments if s.name == "Lesion new")
    middle = np.argwhere(truth.mask(new)).mean(axis=0)
    x, y, z = truth.volume.index_to_world(middle).tolist()
    earlier, mask, later = scans(sample)
    volume = Volume.read(earlier)
    lesions = read_labels(mask, volume)
    some = tuple(
        Segment(lesion.name, lesions.mask(lesion))
        for lesion in lesions.segments
        if lesion.name in ("Lesion grown", "Lesion merged")
    )
    made = Segmentation(volume, some, Algorithm("a", "1"))
    write_seg_nrrd(made, tmp_path / "some.seg.nrrd", is_reviewed=True)
    command = ("follow-up", earlier, tmp_path / "some.seg.nrrd", later, *registered)
    output = tmp_path / "result"
    ran = run(*command, "-o", output, "--new", f"{-x},{-y},{z}")
    assert sorted(p.name for p in output.iterdir()) == FILES
    assert re.search(r"^Registration good: ", ran.out)
    assert re.search(r"Lesion merged 1 \+ Lesion merged 2\s+merged", ran.out)
    assert re.search(r"New lesion\s+new", ran.out)
    assert ran.out.splitlines()[-1].startswith("Next: look at ")
    found = read_labels(output / "later.seg.nrrd", Volume.read(later))
    assert {s.name for s in found.segments} == {"Lesion grown", "Lesion merged", "New lesion"}


def test_masks_of_both_dates_are_compared_as_json(compared):
    folder, facts = compared
    changes = {row["lesion"]: row["change"] for row in facts["lesions"]}
    assert changes["Lesion grown"] == "grown"
    assert changes["Lesion new"] == "new"
    assert changes["Lesion gone"] == "gone"
    assert facts["model"] is None
    assert not (folder / "later.seg.nrrd").exists()


@pytest.mark.usefixtures("blank_pictures")
def test_a_poor_registration_is_shown_and_not_used(run, sample, tmp_path):
    transform = SimpleITK.TranslationTransform(3, (20.0, 30.0, -160.0))
    SimpleITK.WriteTransform(transform, str(tmp_path / "wrong.tfm"))
    ran = run("follow-up", *scans(sample), "--registration", tmp_path / "wrong.tfm",
              "--later-mask", sample / "later.seg.nrrd", "-o", tmp_path / "result",
              status=2)  # fmt: skip
    assert "Registration poor" in ran.err
    assert ran.err.count("\n") == 1
    assert sorted(p.name for p in (tmp_path / "result").iterdir()) == FILES[-2:]


def test_clicks_beside_a_later_mask_are_refused_instead_of_ignored(refused, sample, tmp_path):
    given = ("--later-mask", sample / "later.seg.nrrd", "--new", "0,0,0", "-o", tmp_path / "r")
    assert "leave out --new" in refused("follow-up", *scans(sample), *given)


def test_lesions_under_a_transform_of_a_scene_are_refused(refused, sample, tmp_path):
    earlier, mask, later = scans(sample)
    more = "transform:vtkMRMLTransformNode1;"
    bundle = write_bundle(tmp_path / "a.mrb", earlier, mask, more=more)
    given = (earlier, f"{bundle}#Segments", later, "-o", tmp_path / "result")
    assert "harden them in Slicer" in refused("follow-up", *given)


@pytest.mark.usefixtures("blank_pictures")
def test_two_patients_are_not_compared(refused, run, tmp_path, caplog):
    array = np.random.default_rng(0).normal(0, 50, (12, 32, 32)).astype(np.int16)
    array[3:9, 6:26, 6:26] += 400
    volume = Volume(array, (4.0, 3.0, 3.0))
    for patient in ("ONE", "TWO"):
        (tmp_path / patient).mkdir()
        write_dicom_series(volume, tmp_path / patient, patient_id=f"{patient}-8871")
    lesion = np.zeros(array.shape, np.uint8)
    lesion[5:7, 12:18, 12:18] = 1
    labels = SimpleITK.GetImageFromArray(lesion)
    labels.CopyInformation(_grid(tmp_path / "ONE"))
    SimpleITK.WriteImage(labels, str(tmp_path / "mask.nii.gz"))
    command = ("follow-up", tmp_path / "ONE", tmp_path / "mask.nii.gz", tmp_path / "TWO")
    text = refused(*command, "-o", tmp_path / "result")
    assert "two different patients" in text
    assert "8871" not in text
    run(*command, "-o", tmp_path / "result", "--other-patient", "--register-only")
    # Lesions drawn on the scan of the other patient, or on another series of the same one.
    write_dicom_series(volume, tmp_path / "again", patient_id="ONE-8871")
    for folder in ("TWO", "again"):
        pumit.save(lesion > 0, tmp_path / folder, tmp_path / f"{folder}.dcm")
    command = ("follow-up", tmp_path / "ONE", tmp_path / "TWO.dcm", tmp_path / "ONE")
    text = refused(*command, "-o", tmp_path / "result")
    assert "another patient for the earlier lesions" in text
    assert ".seg.nrrd" in text
    assert "8871" not in text
    # A third person's lesions are refused with the option, too.
    assert "another patient for the earlier lesions" in refused(
        *command, "-o", tmp_path / "result", "--other-patient"
    )
    # One person under two identifiers: the lesions have that of the other scan.
    command = ("follow-up", tmp_path / "ONE", tmp_path / "TWO.dcm", tmp_path / "TWO")
    run(*command, "-o", tmp_path / "result", "--other-patient", "--register-only")
    assert "earlier lesions: DICOM-SEG: states another patient than the image" in caplog.text
    run("follow-up", tmp_path / "ONE", tmp_path / "again.dcm", tmp_path / "ONE",
        "-o", tmp_path / "result", "--register-only")  # fmt: skip
    assert "earlier lesions: DICOM-SEG: refers to another series" in caplog.text
    # Scans in the wrong order.
    assert "check their order" not in caplog.text
    for file in (tmp_path / "again").iterdir():
        dataset = pydicom.dcmread(file)
        dataset.AcquisitionDate = "19990101"
        dataset.save_as(file)
    run("follow-up", tmp_path / "ONE", tmp_path / "mask.nii.gz", tmp_path / "again",
        "-o", tmp_path / "result", "--register-only")  # fmt: skip
    assert "dates the earlier scan after the later one" in caplog.text


def _grid(folder: Path) -> Any:
    volume = Volume.read(folder)
    image = SimpleITK.GetImageFromArray(np.zeros(volume.shape, np.uint8))
    image.SetSpacing(volume.spacing_mm[::-1])
    image.SetOrigin(volume.origin_lps)
    image.SetDirection(volume.direction.ravel().tolist())
    return image


def test_what_cannot_be_followed_is_one_line(refused, sample, tmp_path):
    earlier, mask, later = scans(sample)
    assert "give a .tfm file" in refused(
        "follow-up", earlier, mask, later, "-o", tmp_path / "r", "--registration", earlier
    )
    assert "--new needs 3 numbers" in refused(
        "follow-up", earlier, mask, later, "-o", tmp_path / "r", "--new", "1,2"
    )
    assert "name a folder" in refused("follow-up", earlier, mask, later, "-o", earlier)
    # The result of an earlier follow-up, in its own folder.
    first = sample / "later.seg.nrrd"
    assert "give another name" in refused("follow-up", later, first, earlier, "-o", sample)


@pytest.mark.usefixtures("blank_pictures")
def test_a_corrected_result_is_compared_and_kept(run, sample, compared, registered, tmp_path):
    corrected = tmp_path / "later.seg.nrrd"
    shutil.copy(sample / "later.seg.nrrd", corrected)
    command = ("follow-up", *scans(sample), *registered, "-o", tmp_path, "--later-mask")
    ran = run(*command, corrected, "--json")
    # The transform may come from elsewhere, such as Slicer.
    assert json.loads(ran.out)["registration"] == compared[1]["registration"]
    assert corrected.read_bytes() == (sample / "later.seg.nrrd").read_bytes()
    # Another run does not lose it, either.
    ran = run(*command, sample / "later.seg.nrrd")
    assert ran.out.endswith("follow-up.csv\n")  # there is nothing to correct by clicks
    kept = tmp_path / "later-1.seg.nrrd"
    assert kept.read_bytes() == (sample / "later.seg.nrrd").read_bytes()


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize(
    ("stem", "end", "numbers"), [("met", "", (2, 3)), ("m" * 58, " (2)", (3, 4))]
)
def test_lesions_of_one_name_stay_apart(run, tmp_path, stem, end, numbers):
    array = np.random.default_rng(0).normal(0, 50, (12, 32, 32)).astype(np.int16)
    array[3:9, 6:26, 6:26] += 400
    volume = Volume(array, (4.0, 3.0, 3.0))
    masks = np.zeros((3, *array.shape), bool)
    for number, mask in enumerate(masks):
        mask[5:7, 8:12, 8 + 6 * number : 12 + 6 * number] = True
    segments = tuple(Segment(f"me{number}", mask) for number, mask in enumerate(masks))
    made = Segmentation(volume, segments, Algorithm("a", "1"))
    write_volume_file(array, volume, tmp_path / "scan.nii.gz")
    mets = tmp_path / "mets.seg.nrrd"
    write_seg_nrrd(made, mets, is_reviewed=True)
    name = f":={stem}{end}\n".encode()
    mets.write_bytes(re.sub(rb":=me\d\n", name, mets.read_bytes()))  # as Slicer allows
    SimpleITK.WriteTransform(SimpleITK.TranslationTransform(3), str(tmp_path / "same.tfm"))
    scan = tmp_path / "scan.nii.gz"
    given = ("--later-mask", mets, "--registration", tmp_path / "same.tfm", "--anyway", "--json")
    ran = run("follow-up", scan, mets, scan, *given, "-o", tmp_path / "result")
    names = [stem + end, *(f"{stem} ({number})" for number in numbers), "Sum"]
    assert [row["lesion"] for row in json.loads(ran.out)["lesions"]] == names


@pytest.mark.parametrize(("size", "text"), [(0.014, "0.014"), (0.0, "0"), (3.26, "3.3")])
def test_the_volume_of_a_small_nodule_is_not_zero(size, text):
    assert _short(size) == text
