"""Every family trains, predicts and is judged on thick slices and on images."""

import numpy as np
import pytest
from family_runs import KINDS, TINY, Kind, changes_for, made, write_set
from pumit.inference.automatic.segmentation import load_automatic
from pumit.models.checkpoint import read_recipe
from pumit.networks.build import build_network
from pumit.volume import Volume
from segmentation_runs import train


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TINY)
def test_a_checkpoint_fits_the_data_and_answers_for_another_size(tmp_path, name, kind):
    scans = KINDS[kind]
    write_set(tmp_path / "set", scans)
    model = train(tmp_path, **changes_for(name, scans))
    recipe, _ = read_recipe(model)
    sizes, patch = recipe["sizes"], recipe["plan"]["patch_size"]
    assert recipe["network"] == name
    assert sizes["in_channels"] == recipe["plan"]["channels"] == len(scans.channels)
    assert sizes["num_classes"] == 3
    assert {key: sizes[key] for key in TINY[name]} == TINY[name]
    network = build_network(name, **sizes)
    if name != "pumit_segmentation_small":
        assert all(n % s == 0 for n, s in zip(patch, network.stride, strict=True))
        assert kind != "slice" or patch[0] == network.stride[0] == 1
    assert patch[0] < 3 * scans.shape[0] + 8  # not padding for the most part

    d, h, w = scans.shape
    other = Kind((max(d - 2, 1), h + 8, w - 4), scans.spacing, scans.channels)
    images, _ = made(other, 7)
    scan = Volume(np.stack(images) if len(images) > 1 else images[0], scans.spacing)
    assert load_automatic(model, "cpu").segment(scan, overlap=0.0).labels.shape == other.shape
