"""Check of the packages that reading and training need."""

from __future__ import annotations

import logging
from collections.abc import Callable

from PUMITSlicerLib.computing.availability import Availability, AvailableDevice

from PUMITTrainLib.collaborators import Collaborators

logger = logging.getLogger(__name__)


class Setup:
    """State of the installation; PUMITSegment's installer installs missing packages."""

    def __init__(self, parts: Collaborators, onChanged: Callable[[], None]) -> None:
        self._parts = parts
        self._onChanged = onChanged
        self._isAvailabilityRequested = False
        self.sentence = ""
        self.devices: tuple[AvailableDevice, ...] = ()

    @property
    def isMissing(self) -> bool:
        """Whether something has to be installed."""
        return bool(self.sentence)

    def check(self) -> None:
        """Check what is missing, on a thread."""
        self._parts.background.submit(self._parts.whyNotInstalled, self._take)

    def requestDevices(self) -> None:
        """List the devices once, in a subprocess; the automatic choice always works."""
        if self._isAvailabilityRequested or self.isMissing:
            return
        self._isAvailabilityRequested = True

        def take(available: Availability) -> None:
            self.devices = available.devices
            self._onChanged()

        def fail(error: Exception) -> None:
            logger.info("Devices are not listed: %s", type(error).__name__)
            self._isAvailabilityRequested = False

        self._parts.background.submit(self._parts.readAvailability, take, fail)

    def _take(self, sentence: str) -> None:
        if sentence != self.sentence:
            self.sentence = sentence
            self._onChanged()
