"""Asks a predictor on the small scan of `fake_compute`."""

from __future__ import annotations

import threading

import numpy as np
from fake_compute import scan, wait_for
from pumit.prompts import PointPrompt
from PUMITSegmentLib.masks.predictor import Predictor


class Asker:
    """Asks a predictor, and hears everything it tells."""

    def __init__(self, compute, background):
        self.background = background
        self.predictor = Predictor(compute, background)
        self.volumes = {"scan": scan()}
        self.reads, self.answers, self.errors, self.progress = [], [], [], []

    def ask(self, prompts, segment="1", key="scan", **options):
        def read():
            assert threading.current_thread() is threading.main_thread()
            self.reads.append(key)
            return self.volumes[key]

        self.predictor.request(
            key,
            read,
            segment,
            prompts,
            self.answers.append,
            self.errors.append,
            lambda text, fraction: self.progress.append((text, fraction)),
            **options,
        )

    def wait(self):
        """Wait until nothing is under way any more."""
        assert wait_for(self.background, lambda: self.predictor._current is None)
        assert not self.predictor.isBusy

    def answer(self, prompts, segment="1", key="scan", **options):
        """Ask and wait for the answer."""
        count = len(self.answers)
        self.ask(prompts, segment, key, **options)
        self.wait()
        assert self.errors == []
        assert len(self.answers) == count + 1
        return self.answers[-1]


def point(index, positive=True):
    return PointPrompt(tuple(scan().index_to_world(index)), positive)


FIRST, SECOND, NEGATIVE = point((4, 10, 10)), point((4, 20, 20)), point((4, 11, 11), False)


def ball(*indices):
    mask = np.zeros(scan().shape, dtype=bool)
    for index in indices:
        mask[tuple(slice(max(0, i - 2), i + 3) for i in index)] = True
    return mask
