"""Asks for masks on the small scan of `fake_compute`."""

from __future__ import annotations

import threading

import numpy as np
from fake_compute import scan, wait_for
from pumit.prompts import PointPrompt
from PUMITSegmentLib.masks.question import Question
from PUMITSegmentLib.masks.requests import MaskRequests
from PUMITSlicerLib.status import Activity, StatusBoard


class Asker:
    """Asks for masks, and hears everything it is told.

    Attributes:
        answers: Segment ID and mask of each answer.
        errors: What the status said that is wrong.
        progress: What the status said that goes on, and the finished share.
    """

    def __init__(self, compute, background):
        self.background, self.status = background, StatusBoard()
        self.status.listeners.append(self._hear)
        self.prepare = lambda mask: mask
        self.requests = MaskRequests(
            *(compute, background, self.status),
            ask=lambda segment: self.questions.get(segment),
            onMask=lambda segment, mask: self.answers.append((segment, mask)),
            prepare=lambda mask: self.prepare(mask),
        )
        self.volumes, self.questions = {"scan": scan()}, {}
        self.reads, self.answers, self.errors, self.progress = [], [], [], []

    def _hear(self, status):
        text = status.text.removesuffix("...").partition(": ")[2]
        if status.activity is Activity.WORKING:
            self.progress.append((text, status.fraction))
        elif status.activity is Activity.PROBLEM:
            self.errors.append(text)

    def put(self, prompts, segment="1", key="scan"):
        """Let a segment have these prompts on a scan, without asking yet."""

        def read():
            assert threading.current_thread() is threading.main_thread()
            self.reads.append(key)
            return self.volumes[key]

        self.questions[segment] = Question(f"Segment {segment}", key, read, prompts)

    def ask(self, prompts, segment="1", key="scan"):
        self.put(prompts, segment, key)
        self.requests.request(segment)

    def wait(self):
        """Wait until nothing is under way any more."""
        assert wait_for(self.background, lambda: self.requests._current is None)
        assert self.requests.running is None

    def answer(self, prompts, segment="1", key="scan"):
        """Ask and wait for the mask."""
        count = len(self.answers)
        self.ask(prompts, segment, key)
        self.wait()
        assert self.errors == []
        assert len(self.answers) == count + 1
        assert self.answers[-1][0] == segment
        return self.answers[-1][1]

    def places(self, prompts, segment="1"):
        """Ask for places to check, and wait for them."""
        found = []
        self.put(prompts, segment)
        self.requests.findPlaces(segment, found.append)
        self.wait()
        return found[-1]


def point(index, positive=True):
    return PointPrompt(tuple(scan().index_to_world(index)), positive)


FIRST, SECOND, NEGATIVE = point((4, 10, 10)), point((4, 20, 20)), point((4, 11, 11), False)


def ball(*indices):
    mask = np.zeros(scan().shape, dtype=bool)
    for index in indices:
        mask[tuple(slice(max(0, i - 2), i + 3) for i in index)] = True
    return mask
