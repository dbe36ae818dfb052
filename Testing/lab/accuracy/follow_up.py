"""Follow-up on generated scans of two dates: registration error, volume error, correct changes.

python Testing/lab/accuracy/follow_up.py [SEEDS]
"""

import argparse

import numpy as np
from pumit import InteractiveSession, load_segmenter
from pumit.evaluation.metrics import dice
from pumit.followup.follow_up import compare_dates, follow_up
from pumit.followup.registration import register
from pumit.training.synthesis.two_dates import two_dates

EXPECTED = {
    "grown": "grown",
    "shrunk": "shrunk",
    "stable": "stable",
    "gone": "gone",
    "merged 1 + merged 2": "merged",
    "split": "split",
}


def main(count: int) -> None:
    """Print a row per torso, and the means."""
    segmenter = load_segmenter("default")
    errors, told, volumes, right, right_masks, scores = [], [], [], 0, 0, []
    for seed in range(count):
        dates = two_dates(seed)
        found = register(dates.earlier, dates.later)
        session = InteractiveSession(segmenter)
        session.set_volume(dates.later)
        segments = list(dates.earlier_masks.items())
        result = follow_up(dates.earlier, segments, dates.later, found, session)
        for mask in dates.earlier_masks.values():
            places = dates.earlier.index_to_world(np.argwhere(mask))
            true = places @ dates.matrix[:3, :3].T + dates.matrix[:3, 3]
            errors.append(np.linalg.norm(found.to_later(places) - true, axis=1).mean())
        told.append(found.shift_mm)
        changes = {c.name: c.change for c in result.changes}
        right += sum(changes.get(name) == change for name, change in EXPECTED.items())
        later = list(dates.later_masks.items())
        given = compare_dates(dates.earlier, segments, dates.later, later, found)
        known = {c.name: c.change for c in given.changes}
        right_masks += sum(known.get(n) == c for n, c in (EXPECTED | {"new": "new"}).items())
        for name, mask in result.segments:
            true_mask = dates.later_masks.get(name)
            if true_mask is None:
                continue
            volumes.append(abs(mask.sum() / true_mask.sum() - 1))
            scores.append(dice(mask, true_mask))
        wrong = {n: changes.get(n) for n, c in EXPECTED.items() if changes.get(n) != c}
        print(
            f"{seed}: error {np.mean(errors[-6:]):.2f} mm (told {told[-1]:.2f}), "
            f"Dice {np.mean(scores[-5:]):.3f}, wrong {wrong or 'none'}",
            flush=True,
        )
    print(
        f"registration error mean {np.mean(errors):.2f} mm, largest {np.max(errors):.2f} mm, told "
        f"{np.mean(told):.2f} mm; volume error median {100 * np.median(volumes):.1f} %, mean "
        f"{100 * np.mean(volumes):.1f} %; Dice {np.mean(scores):.3f}; changes right "
        f"{right}/{6 * count} answered, {right_masks}/{7 * count} of given masks"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", type=int, nargs="?", default=10, help="number of torsos")
    main(parser.parse_args().seeds)
