"""A comparison's recipe is checked whole, and makes the recipes of its trainings."""

import pytest
from made_comparison import RECIPE, written
from pumit.cli.shared.training_options import find_recipe
from pumit.errors import PumitError
from pumit.training.comparison.plan import read_comparison

UNET = RECIPE["networks"][0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": [1, 1]}, "seeds in compare.yaml must be different whole numbers"),
        ({"seeds": []}, "seeds"),
        ({"seconds": None}, "needs seconds"),
        ({"seconds": 0}, "seconds in compare.yaml must be above 0"),
        ({"clock": "processer"}, "clock in compare.yaml must be"),
        ({"processes": 0}, "processes in compare.yaml must be at least 1"),
        ({"schedule": {"seconds": 3}}, "give seconds next to schedule"),
        ({"schedule": {"validate_every": 5}}, "only the end of a training is judged"),
        ({"schedule": {"shape": "poly"}}, "falls by steps"),
        ({"data": {**RECIPE["data"], "share": 0.5}}, "share with the network"),
        ({"networks": []}, "networks in compare.yaml must have at least 1"),
        ({"networks": ["basic_unet"]}, "networks, number 1 .* must be keys"),
        ({"networks": [UNET, {"name": "x"}]}, "networks, number 2 needs the key network"),
        ({"networks": [UNET, UNET]}, "Two networks are called 'U-Net'"),
        ({"networks": [UNET, {**UNET, "name": "u-net"}]}, "'U-Net' and 'u-net'"),
        ({"networks": [{**UNET, "name": "../out"}]}, "cannot be that of a folder"),
        ({"networks": [{**UNET, "network": "basic_unett"}]}, "U-Net: .*did you mean 'basic_unet'"),
        ({"networks": [{**UNET, "network_sizes": {"feature": 3}}]}, "did you mean 'features'"),
        ({"networks": [{**UNET, "sizes": {}}]}, "Unknown key 'sizes' in networks, number 1"),
        ({"networks": [{**UNET, "share": 0}]}, "share in networks, number 1"),
        ({"networks": [{**UNET, "schedule": {"seconds": 9}}]}, "must be the same for all"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, changes, message):
    with pytest.raises(PumitError, match=message):
        read_comparison(written(tmp_path, **changes))


def test_trainings_differ_in_what_is_a_networks_own(tmp_path):
    own = {**UNET, "name": "less", "share": 0.5, "initial": "a.safetensors"}
    own |= {"schedule": {"learning_rate": 0.5}, "tuning": "nobody searched"}
    found = read_comparison(written(tmp_path, networks=[UNET, own]))
    first, second = (found.training_keys(network, 3) for network in found.recipe.networks)
    assert second["data"] == {**first["data"], "share": 0.5}
    assert second["schedule"] == {**first["schedule"], "learning_rate": 0.5}
    ours = {"name", "data", "schedule", "initial"}
    assert {k: v for k, v in first.items() if k not in ours} == {
        k: v for k, v in second.items() if k not in ours
    }
    assert (first["schedule"]["seconds"], first["schedule"]["validate_every"]) == (30.0, 0)
    assert "initial" not in first
    assert (found.recipe.networks[1].tuning, second["seed"]) == ("nobody searched", 3)
    # A network is called as it is built where it has no name.
    nameless = written(tmp_path, networks=[{"network": "basic_unet"}])
    (only,) = read_comparison(nameless).recipe.networks
    assert (only.name, only.slug) == ("basic_unet", "basic_unet")


def test_the_recipe_that_ships_compares_five_families_and_a_unet():
    path, is_shipped = find_recipe("compare_hippocampus", "compare")
    assert is_shipped
    found = read_comparison(path)
    assert len(found.recipe.networks) == 6
    assert found.recipe.seeds == [0, 1, 2]
    assert found.schedule["seconds"] > 0
    assert found.schedule["clock"] == "processor"
    assert not found.recipe.pictures  # the set's licence allows no pictures
    data = found.file.keys["data"]
    everybody = sorted([*data["training"], *data["validation"]])
    assert data["validation"] == everybody[::3]
    assert len(everybody) == 24


def test_a_folder_in_place_of_a_recipe_is_named_as_such(tmp_path):
    with pytest.raises(PumitError, match="is a folder, not a recipe; `pumit plan` makes"):
        find_recipe(str(tmp_path), "train")
