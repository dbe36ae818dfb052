"""A later scan of a patient is found where it moved to, and how well is told."""

import json
from dataclasses import replace

import numpy as np
import pytest
import SimpleITK
from pumit.errors import Cancelled, VolumeError
from pumit.followup.files import registration_facts
from pumit.followup.registration import (
    Registration,
    brought_onto,
    itk_transform,
    measured,
    register,
)
from pumit.geometry import Floats
from pumit.training.synthesis.two_dates import TwoDates
from pumit.volume import Volume


@pytest.fixture(scope="module")
def registration(dates) -> Registration:
    return register(dates.earlier, dates.later)


def errors_mm(found: Registration, dates: TwoDates) -> list[float]:
    """Mean distance of each lesion's voxels from where they are, mm."""
    means = []
    for mask in dates.earlier_masks.values():
        places = dates.earlier.index_to_world(np.argwhere(mask))
        true = places @ dates.matrix[:3, :3].T + dates.matrix[:3, 3]
        means.append(float(np.linalg.norm(found.to_later(places) - true, axis=1).mean()))
    return means


def test_lesions_are_within_two_millimetres(dates, registration):
    """The table is 18 cm elsewhere, the patient turned and breathes otherwise."""
    assert max(errors_mm(registration, dates)) < 2.0
    assert registration.fit == "good"
    assert registration.shift_mm < 2.0
    assert registration.overlap > 0.9


def crop(dates: TwoDates, size: tuple[int, ...]) -> Volume:
    """Cut out a part of the earlier scan around its first lesion."""
    middle = np.argwhere(next(iter(dates.earlier_masks.values()))).mean(axis=0)
    start = np.clip(np.rint(middle - np.array(size) / 2), 0, dates.earlier.shape).astype(int)
    start = np.minimum(start, np.array(dates.earlier.shape) - size)
    x, y, z = (float(v) for v in dates.earlier.index_to_world(start))
    window = tuple(slice(a, a + n) for a, n in zip(start, size, strict=True))
    return replace(dates.earlier, array=dates.earlier.array[window], origin_lps=(x, y, z))


def test_the_same_scans_give_the_same_transform_on_any_number_of_processors(dates):
    part = crop(dates, (16, 60, 60))
    x, y, z = part.origin_lps
    moved = replace(part, origin_lps=(x + 6.0, y - 4.0, z))
    before, found = SimpleITK.ProcessObject.GetGlobalDefaultNumberOfThreads(), []
    try:
        for threads in (1, 3):
            SimpleITK.ProcessObject.SetGlobalDefaultNumberOfThreads(threads)
            found.append(register(part, moved).matrix)
    finally:
        SimpleITK.ProcessObject.SetGlobalDefaultNumberOfThreads(before)
    np.testing.assert_array_equal(*found)
    assert found[0][:2, 3] == pytest.approx((6.0, -4.0), abs=1.0)


def test_both_directions_are_inverse(registration):
    places = np.random.default_rng(0).uniform(-100, 100, (20, 3))
    there_and_back = registration.to_earlier(registration.to_later(places))
    np.testing.assert_allclose(there_and_back, places, atol=1e-9)


def test_other_units_of_a_later_scan_do_not_matter(dates):
    part = crop(dates, (30, 80, 80))
    x, y, z = part.origin_lps
    other = replace(part, array=(part.array.astype(np.float32) + 1024) * 0.37,
                    origin_lps=(x + 6.0, y - 4.0, z))  # fmt: skip
    place = part.index_to_world((15, 40, 40))
    np.testing.assert_allclose(
        register(part, other).to_later(place) - place, (6.0, -4.0, 0.0), atol=1.0
    )


def test_half_of_a_later_scan_is_enough(dates):
    """Its middle is elsewhere than that of the whole."""
    half = dates.later.shape[0] // 2
    origin = dates.later.index_to_world((half, 0, 0))
    x, y, z = (float(v) for v in origin)
    part = replace(dates.later, array=dates.later.array[half:], origin_lps=(x, y, z))
    found = register(dates.earlier, part)
    assert found.overlap < 0.7
    assert min(errors_mm(found, dates)) < 4.0


def test_a_wrong_transform_is_called_poor(dates):
    shifted = dates.matrix.copy()
    shifted[:3, 3] += (25.0, 0.0, 20.0)
    assert measured(dates.earlier, dates.later, shifted).fit == "poor"
    assert measured(dates.earlier, dates.later, dates.matrix).fit == "good"


@pytest.mark.parametrize("size", [(11, 176, 208), (16, 20, 40)])
def test_a_small_part_of_a_body_is_registered(dates, size):
    """A slab of 33 mm, and a crop around an organ."""
    part = crop(dates, size)
    found = register(part, part)
    assert found.shift_mm < 1.0
    assert found.overlap > 0.95


def slab(volume: Volume, start: int, slices: int) -> Volume:
    """Cut slices out of a scan, coarser in-plane, which leaves each voxel where it was."""
    x, y, z = (float(v) for v in volume.index_to_world((start, 0, 0)))
    spacing = tuple(s * f for s, f in zip(volume.spacing_mm, (1, 2, 2), strict=True))
    array = volume.array[start : start + slices, ::2, ::2]
    return replace(volume, array=array, spacing_mm=spacing, origin_lps=(x, y, z))


@pytest.mark.parametrize("slices", [2, 11])
def test_a_thin_slab_of_something_else_is_called_poor(dates, phantom, slices):
    """Along few slices a residual is measured only in part: at best it is to be checked."""
    start = (dates.earlier.shape[0] - slices) // 2
    one = slab(dates.earlier, start, slices)
    step = round(24 / dates.earlier.spacing_mm[0])
    others = {
        "24 mm above": slab(dates.earlier, start + step, slices).array,
        "24 mm below": slab(dates.earlier, start - step, slices).array,
        "mirrored": one.array[:, :, ::-1].copy(),
        "another patient": slab(phantom, start, slices).array,
    }
    fits = {name: measured(one, replace(one, array=a), np.eye(4)).fit for name, a in others.items()}
    assert fits == dict.fromkeys(others, "poor")
    assert measured(one, one, np.eye(4)).fit == "check"
    later = slab(dates.later, 0, dates.later.shape[0])
    assert measured(one, later, dates.matrix).fit == "check"
    off = dates.matrix.copy()
    off[2, 3] += 24
    assert measured(one, later, off).fit == "poor"


def test_what_cannot_be_measured_is_said_and_is_no_number_in_json():
    nothing = Registration(np.eye(4), float("inf"), float("inf"), 0.0, 0.4)
    assert nothing.sentence == "Registration poor: no part of one scan was found in the other."
    facts = json.loads(json.dumps(registration_facts(nothing), allow_nan=False))
    assert (facts["fit"], facts["shift_mm"], facts["worst_mm"]) == ("poor", None, None)


def test_noise_is_no_patient(dates):
    part = crop(dates, (30, 80, 80))
    noise = np.random.default_rng(0).normal(0, 100, part.shape).astype(np.float32)
    assert register(part, replace(part, array=noise)).fit == "poor"


def test_the_later_scan_is_brought_to_the_earlier_grid(dates, registration):
    moved = brought_onto(dates.earlier, dates.later, registration.matrix)
    middle = tuple(slice(n // 4, -(n // 4)) for n in dates.earlier.shape)
    first: Floats = dates.earlier.array[middle].astype(np.float64)
    assert np.corrcoef(first.ravel(), moved[middle].ravel())[0, 1] > 0.95
    point = (10.0, -20.0, 30.0)
    there = itk_transform(registration.matrix).TransformPoint(point)
    np.testing.assert_allclose(there, registration.to_later(point), atol=1e-9)


def test_pictures_are_refused(dates):
    with pytest.raises(VolumeError, match="2D image"):
        register(dates.earlier, Volume(np.zeros((1, 20, 20)), (1e8, 1.0, 1.0)))


def test_it_can_be_cancelled(dates):
    with pytest.raises(Cancelled):
        register(dates.earlier, dates.later, cancelled=lambda: True)
