"""Registration of two scans of a patient: rigid, then affine."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import SimpleITK
from scipy import ndimage
from skimage.feature import match_template

from pumit.errors import Cancelled, VolumeError
from pumit.export.volume_file import itk_image
from pumit.geometry import Floats
from pumit.preprocessing.channels import grey
from pumit.volume import Volume

Mask = npt.NDArray[np.bool_]
Fit = Literal["good", "check", "poor"]

# Smallest voxel size for registration, and distance of sample points, mm.
_WORKING_MM = 3.0
_SEARCH_MM = 12.0
# Overlap below which two scans do not show the same part of a body.
_LEAST_SHARE = 0.3
# Half-width of compared blocks, and search radius, in working voxels.
_BLOCK, _REACH = 4, 4
# Residual shift up to which a registration is good, and above which it is poor, mm.
_GOOD_MM, _POOR_MM = 3.0, 8.0
# Largest plausible factor of volume change for the same patient.
_STRETCH = 1.35


@dataclass(frozen=True, eq=False)
class Registration:
    """Transform from an earlier to a later scan, with measures of its quality.

    Attributes:
        matrix: 4 x 4, from the earlier to the later scan, LPS mm.
        shift_mm: Residual shift between the scans: the median over blocks of the body; infinite
            if no block is in both.
        worst_mm: 90th percentile of the residual shift.
        similarity: Median correlation of blocks, 0 to 1; may be low between MR sequences.
        overlap: Fraction of the earlier body within the later scan, 0 to 1.
        is_thin: Whether the earlier scan has too few slices to measure a shift across them in
            full; a registration in doubt is then poor, any other is to be checked.
    """

    matrix: Floats
    shift_mm: float
    worst_mm: float
    similarity: float
    overlap: float
    is_thin: bool = False

    @property
    def fit(self) -> Fit:
        """Quality of the registration as one word."""
        if not self.shift_mm <= _POOR_MM or self.similarity < 0.3:
            return "poor"
        is_close = self.shift_mm <= _GOOD_MM and self.similarity > 0.5
        if self.is_thin:  # in a wrong one, a tenth of the blocks is at the end of its reach
            return "check" if is_close and self.worst_mm < _REACH * _WORKING_MM else "poor"
        return "good" if is_close and self.worst_mm <= _POOR_MM else "check"

    def to_later(self, points_lps: npt.ArrayLike) -> Floats:
        """Map points of the earlier scan, (..., 3), to the later one, LPS mm."""
        return np.asarray(points_lps, np.float64) @ self.matrix[:3, :3].T + self.matrix[:3, 3]

    @property
    def sentence(self) -> str:
        """Quality of the registration as a sentence for the user."""
        if not np.isfinite(self.shift_mm):
            return f"Registration {self.fit}: no part of one scan was found in the other."
        return (
            f"Registration {self.fit}: {self.shift_mm:.1f} mm median residual between blocks of "
            f"the scans (90 % within {self.worst_mm:.1f} mm), {self.overlap:.0%} of the earlier "
            "body is in the later scan."
        )

    @cached_property
    def inverse(self) -> Floats:
        """4 x 4, from the later to the earlier scan, LPS mm."""
        return np.asarray(np.linalg.inv(self.matrix))

    def to_earlier(self, points_lps: npt.ArrayLike) -> Floats:
        """Map points of the later scan, (..., 3), to the earlier one, LPS mm."""
        return np.asarray(points_lps, np.float64) @ self.inverse[:3, :3].T + self.inverse[:3, 3]


def register(
    earlier: Volume,
    later: Volume,
    *,
    progress: Callable[[str, float], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Registration:
    """Register a later scan to an earlier one of the same patient.

    Rigid, then affine, multi-resolution, by Mattes mutual information within the body. The result
    is deterministic.

    Args:
        progress: Callback with the name of a step and the finished fraction, 0 to 1.

    Raises:
        VolumeError: If a scan is a 2D image, or they do not show the same part of a body.
        Cancelled: If `cancelled` returned true.

    Source:
        Mattes et al., IEEE TMI 2003, as in ITK.
    """
    _require_volumes(earlier, later)

    def step(what: str, share: float) -> None:
        if cancelled is not None and cancelled():
            raise Cancelled("Cancelled; nothing was changed.")
        if progress is not None:
            progress(what, share)

    step("Preparing the scans", 0.0)
    fixed, body = _image_and_body(earlier)
    moving, other = _image_and_body(later)
    step("Finding the initial alignment", 0.15)
    rigid = SimpleITK.Euler3DTransform()
    rigid.SetCenter(_middle(body))
    rigid.SetTranslation(_first_shift(fixed, moving, body, other))
    step("Registering, rigid", 0.25)
    rigid = _optimised(fixed, moving, body, rigid, (4, 2, 1))
    step("Registering, affine", 0.55)
    affine = SimpleITK.AffineTransform(3)
    affine.SetCenter(rigid.GetCenter())
    affine.SetMatrix(rigid.GetMatrix())
    affine.SetTranslation(rigid.GetTranslation())
    affine = _optimised(fixed, moving, body, affine, (2, 1))
    step("Measuring the registration quality", 0.85)
    found = [_measured(fixed, moving, body, matrix_of(t)) for t in (rigid, affine)]
    volume = abs(float(np.linalg.det(found[1].matrix[:3, :3])))
    is_possible = 1 / _STRETCH < volume < _STRETCH
    is_better = (found[1].shift_mm, found[1].worst_mm) <= (found[0].shift_mm, found[0].worst_mm)
    if found[1].similarity > found[0].similarity:
        is_better = found[1].shift_mm <= found[0].shift_mm + 0.5
    best = found[1] if is_possible and is_better else found[0]
    step("Registered", 1.0)
    return best


def measured(earlier: Volume, later: Volume, matrix: npt.ArrayLike) -> Registration:
    """Measure how well a given transform fits two scans.

    Args:
        matrix: 4 x 4, from the earlier to the later scan, LPS mm.

    Raises:
        VolumeError: If a scan is a 2D image.
    """
    _require_volumes(earlier, later)
    fixed, body = _image_and_body(earlier)
    return _measured(fixed, _image_and_body(later)[0], body, np.asarray(matrix, np.float64))


def brought_onto(grid_of: Volume, volume: Volume, matrix: Floats) -> npt.NDArray[np.float32]:
    """Resample a scan onto the grid of another, (D, H, W), with its minimum as background.

    Args:
        matrix: 4 x 4, from points of the other scan to points of this one, LPS mm.
    """
    array = np.nan_to_num(np.asarray(grey(volume, 0), np.float32))
    grid = itk_image(np.zeros(grid_of.shape, np.uint8), grid_of)
    moved = SimpleITK.Resample(
        itk_image(array, volume),
        grid,
        itk_transform(matrix),
        SimpleITK.sitkLinear,
        float(array.min()),
        SimpleITK.sitkFloat32,
    )
    return np.asarray(SimpleITK.GetArrayFromImage(moved), np.float32)


def itk_transform(matrix: Floats) -> Any:
    """Convert a 4 x 4 matrix, LPS mm, to an ITK transform."""
    transform = SimpleITK.AffineTransform(3)
    transform.SetMatrix(matrix[:3, :3].ravel().tolist())
    transform.SetTranslation(matrix[:3, 3].tolist())
    return transform


def _require_volumes(earlier: Volume, later: Volume) -> None:
    if earlier.is_planar or later.is_planar:
        raise VolumeError("A follow-up needs volumes; one of the scans is a 2D image.")


def _image(volume: Volume) -> Any:
    """Return a grey image resampled to the working resolution, with outliers clipped."""
    array = np.nan_to_num(np.asarray(grey(volume, 0), np.float32))
    low, high = np.percentile(array[:: max(1, array.shape[0] // 64), ::2, ::2], (0.5, 99.8))
    image = itk_image(np.clip(array, low, high), volume)
    steps = np.maximum(image.GetSpacing(), _WORKING_MM)
    ratio = steps / np.array(image.GetSpacing())
    sigmas = [0.5 * s if r > 1.01 else 0.0 for s, r in zip(steps, ratio, strict=True)]
    image = SimpleITK.DiscreteGaussian(image, [s * s for s in sigmas])
    size = [max(1, int(n)) for n in np.ceil(np.array(image.GetSize()) / ratio)]
    return SimpleITK.Resample(
        image,
        size,
        SimpleITK.Transform(),
        SimpleITK.sitkLinear,
        image.GetOrigin(),
        steps.tolist(),
        image.GetDirection(),
        float(low),
    )


def _image_and_body(volume: Volume) -> tuple[Any, Any]:
    """Return the image clipped to intensities of the body, and a dilated mask of the body."""
    image = _image(volume)
    filled = _filled_body(image)
    values = SimpleITK.GetArrayViewFromImage(image)
    low, high = np.percentile(values[filled], (2, 99.5))
    body = ndimage.binary_dilation(filled, iterations=2)
    mask = SimpleITK.GetImageFromArray(body.astype(np.uint8))
    mask.CopyInformation(image)
    return SimpleITK.Clamp(image, SimpleITK.sitkFloat32, float(low), float(high)), mask


def _filled_body(image: Any) -> Mask:
    """Segment the body: the largest component above Otsu's threshold, filled slice by slice."""
    mask = SimpleITK.OtsuThreshold(SimpleITK.DiscreteGaussian(image, 4.0), 0, 1)
    array = SimpleITK.GetArrayViewFromImage(mask) > 0
    pieces, count = ndimage.label(array)
    if count:
        array = pieces == 1 + int(np.bincount(pieces.ravel())[1:].argmax())
    filled = np.stack([ndimage.binary_fill_holes(part) for part in array])
    return filled if filled.any() else np.ones_like(filled)


def _middle(body: Any) -> tuple[float, ...]:
    index = ndimage.center_of_mass(SimpleITK.GetArrayViewFromImage(body))
    point: tuple[float, ...] = body.TransformContinuousIndexToPhysicalPoint(index[::-1])
    return point


def _places(image: Any, mask: Any, step_mm: float) -> Floats:
    """Sample points of a mask on a regular grid of about `step_mm`, LPS mm, (N, 3)."""
    steps = [max(1, round(step_mm / s)) for s in image.GetSpacing()[::-1]]
    array = SimpleITK.GetArrayViewFromImage(mask)[:: steps[0], :: steps[1], :: steps[2]]
    index = np.argwhere(array) * steps
    return _world(image, index)


def _world(image: Any, index: npt.ArrayLike) -> Floats:
    steps = np.asarray(index, np.float64)[..., ::-1] * np.array(image.GetSpacing())
    direction = np.array(image.GetDirection()).reshape(3, 3)
    return np.asarray(steps @ direction.T + np.array(image.GetOrigin()))


def _index(image: Any, points: Floats) -> Floats:
    direction = np.array(image.GetDirection()).reshape(3, 3)
    steps = (points - np.array(image.GetOrigin())) @ np.linalg.inv(direction).T
    return np.asarray((steps / np.array(image.GetSpacing()))[..., ::-1])


def _values(image: Any, points: Floats) -> tuple[Floats, Mask]:
    """Interpolate intensities at points, (...,), and tell which points are inside the image."""
    index = np.moveaxis(_index(image, points), -1, 0)
    array = SimpleITK.GetArrayViewFromImage(image)
    size = np.array(array.shape).reshape(3, *[1] * (index.ndim - 1))
    inside = ((index >= -0.5) & (index <= size - 0.5)).all(axis=0)
    values = ndimage.map_coordinates(array, index, order=1, mode="nearest")
    return np.asarray(values, np.float64), np.asarray(inside)


def _first_shift(fixed: Any, moving: Any, body: Any, other: Any) -> list[float]:
    """Search the initial translation: none, or body centres aligned plus shifts along z."""
    places = _places(fixed, body, _SEARCH_MM)
    here, _ = _values(fixed, places)
    between = np.array(_middle(other)) - np.array(_middle(body))
    # One scan may show a longer part of the body than the other.
    reach = 0.5 * max(
        float(np.ptp(_places(i, m, _SEARCH_MM)[:, 2])) for i, m in ((fixed, body), (moving, other))
    )
    along = np.arange(0, reach, _SEARCH_MM)
    along = np.concatenate([-along[:0:-1], along])
    shifts = [np.zeros(3)] + [between + np.array((0.0, 0.0, z)) for z in along]
    best, found = -1.0, None
    for shift in shifts:
        there, inside = _values(moving, places + shift)
        if inside.mean() < _LEAST_SHARE:
            continue
        information = _information(here[inside], there[inside])
        if information > best:
            best, found = information, shift
    if found is None:
        raise VolumeError(
            "The two scans do not show the same part of a body; choose scans of the same region."
        )
    return [float(v) for v in found]


def _information(first: Floats, second: Floats) -> float:
    joint = np.histogram2d(first, second, bins=24)[0] / len(first)
    parts = (joint.sum(0), joint.sum(1), joint.ravel())
    a, b, both = (-float((p[p > 0] * np.log(p[p > 0])).sum()) for p in parts)
    return (a + b - both) / both if both > 0 else 0.0


def _optimised(fixed: Any, moving: Any, body: Any, start: Any, shrink: tuple[int, ...]) -> Any:
    """Optimise a transform, from coarse to fine; a small crop is too small for coarse levels."""
    transform = type(start)(start)
    try:
        _method(transform, body, shrink).Execute(fixed, moving)
        return transform
    except RuntimeError as error:
        if len(shrink) > 1:
            return _optimised(fixed, moving, body, start, shrink[1:])
        raise VolumeError(
            "The two scans do not show the same part of a body; choose scans of the same region."
        ) from error


def _method(transform: Any, body: Any, shrink: tuple[int, ...]) -> Any:
    method = SimpleITK.ImageRegistrationMethod()
    # One thread: sums of floats depend on how they are divided.
    method.SetNumberOfThreads(1)
    method.SetNumberOfWorkUnits(1)
    method.SetMetricAsMattesMutualInformation(32)
    method.SetMetricFixedMask(body)
    method.SetMetricSamplingStrategy(method.REGULAR)
    method.SetMetricSamplingPercentagePerLevel([min(1.0, 0.1 * s) for s in shrink], seed=1)
    method.SetInterpolator(SimpleITK.sitkLinear)
    method.SetShrinkFactorsPerLevel(shrink)
    method.SetSmoothingSigmasPerLevel([s / 2 * _WORKING_MM if s > 1 else 0.0 for s in shrink])
    method.SmoothingSigmasAreSpecifiedInPhysicalUnitsOn()
    method.SetOptimizerAsRegularStepGradientDescent(
        2.0, 0.02, 80, relaxationFactor=0.6, gradientMagnitudeTolerance=1e-6
    )
    method.SetOptimizerScalesFromPhysicalShift()
    method.SetInitialTransform(transform, inPlace=True)
    return method


def matrix_of(transform: Any) -> Floats:
    """Return a linear ITK transform as a 4 x 4 matrix, LPS mm."""
    corners = [(0.0, 0.0, 0.0), *np.eye(3).tolist()]
    origin, *ends = np.array([transform.TransformPoint(corner) for corner in corners])
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = np.column_stack(ends) - origin[:, None], origin
    return matrix


def _measured(fixed: Any, moving: Any, body: Any, matrix: Floats) -> Registration:
    places = _places(fixed, body, _SEARCH_MM)
    _, inside = _values(moving, places @ matrix[:3, :3].T + matrix[:3, 3])
    shape = SimpleITK.GetArrayViewFromImage(fixed).shape
    grid = _world(fixed, np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1))
    there, shown = _values(moving, grid @ matrix[:3, :3].T + matrix[:3, 3])
    here = SimpleITK.GetArrayViewFromImage(fixed).astype(np.float64)
    spacing = np.array(fixed.GetSpacing()[::-1])
    whole = [[max(1, round(n * _WORKING_MM / s)) for s in spacing] for n in (_BLOCK, _REACH)]
    # A thin slab has smaller blocks and a shorter reach along its few slices.
    half = [min(h, (n - 1) // 4) for h, n in zip(whole[0], shape, strict=True)]
    reach = [min(r, (n - 1) // 2 - h) for r, n, h in zip(whole[1], shape, half, strict=True)]
    is_thin = [half, reach] != whole
    apart = [max(1, round(2.5 * _SEARCH_MM / s)) for s in spacing]
    mask = SimpleITK.GetArrayViewFromImage(body) > 0
    margins = [h + r for h, r in zip(half, reach, strict=True)]
    centres = product(*(range(m, n - m, a) for m, n, a in zip(margins, shape, apart, strict=True)))
    blocks = []
    for centre in centres:
        wide = tuple(slice(c - m, c + m + 1) for c, m in zip(centre, margins, strict=True))
        block = here[tuple(slice(c - h, c + h + 1) for c, h in zip(centre, half, strict=True))]
        if mask[centre] and shown[wide].all():
            blocks.append((block, there[wide]))
    spread = np.array([block.std() for block, _ in blocks])
    # Skip the most uniform third: within uniform tissue a block matches everywhere.
    chosen = np.argsort(spread)[len(spread) // 3 :].tolist()[-60:]
    shifts, fits = [], []
    for number in chosen:
        block, area = blocks[number]
        fit = match_template(area, block)
        shifts.append(float(np.linalg.norm((_peak(fit) - reach) * spacing)))
        fits.append(float(fit[tuple(reach)]))
    if not shifts:  # nothing in common
        return Registration(matrix, float("inf"), float("inf"), 0.0, float(inside.mean()), is_thin)
    return Registration(
        matrix,
        float(np.median(shifts)),
        float(np.quantile(shifts, 0.9)),
        float(np.clip(np.median(fits), 0, 1)),
        float(inside.mean()),
        is_thin,
    )


def _peak(fit: Floats) -> Floats:
    """Locate the maximum of a map with subvoxel precision, by a parabola along each axis."""
    top = np.unravel_index(int(fit.argmax()), fit.shape)
    place = np.array(top, np.float64)
    for axis, at in enumerate(top):
        if 0 < at < fit.shape[axis] - 1:
            before, here, after = (
                float(fit[(*top[:axis], at + step, *top[axis + 1 :])]) for step in (-1, 0, 1)
            )
            bend = before - 2 * here + after
            place[axis] += 0.5 * (before - after) / bend if bend < 0 else 0.0
    return place
