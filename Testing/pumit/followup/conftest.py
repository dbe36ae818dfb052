"""A torso at two dates, and how they are registered."""

import pytest
from pumit.followup.registration import Registration, register
from pumit.training.synthesis.phantom import torso_phantom
from pumit.training.synthesis.two_dates import TwoDates, two_dates
from pumit.volume import Volume


@pytest.fixture(scope="package")
def dates() -> TwoDates:
    return two_dates()


@pytest.fixture(scope="package")
def registration(dates: TwoDates) -> Registration:
    return register(dates.earlier, dates.later)


@pytest.fixture(scope="package")
def phantom() -> Volume:
    """Torso of another patient than at the two dates."""
    return torso_phantom(11).volume
