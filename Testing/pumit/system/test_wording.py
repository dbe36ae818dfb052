"""Sizes are readable from a whole body to a cell."""

import pytest
from pumit.system.wording import area_text, volume_text


@pytest.mark.parametrize(
    ("volume_ml", "text"),
    [
        (71_234.5, "71,230 mL"),
        (12.3, "12.3 mL"),
        (0.000412, "0.412 mm³"),
        (1.234e-8, "12,340 µm³"),
        (9.99e-7, "999,000 µm³"),
        (8.5e-11, "85 µm³"),
    ],
)
def test_a_volume_has_no_exponent(volume_ml, text):
    assert volume_text(volume_ml) == text


@pytest.mark.parametrize(
    ("area_cm2", "text"), [(1.5, "1.5 cm²"), (1.44e-4, "0.0144 mm²"), (2e-7, "20 µm²")]
)
def test_an_area_has_no_exponent(area_cm2, text):
    assert area_text(area_cm2) == text
