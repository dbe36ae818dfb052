"""A torso at two dates, and how they lie to each other."""

import pytest
from pumit.followup.registration import Registration, measured
from pumit.training.synthesis.phantom import torso_phantom
from pumit.training.synthesis.two_dates import TwoDates, two_dates
from pumit.volume import Volume


@pytest.fixture(scope="package")
def dates() -> TwoDates:
    return two_dates()


@pytest.fixture(scope="package")
def registration(dates: TwoDates) -> Registration:
    """As it is known from what was generated."""
    return measured(dates.earlier, dates.later, dates.matrix)


@pytest.fixture(scope="package")
def phantom() -> Volume:
    """Torso of another patient than at the two dates."""
    return torso_phantom(11).volume
