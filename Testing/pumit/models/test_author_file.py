"""Files of PUMIT's authors give the same answers as the networks they were written from."""

import pickle
import warnings

import pytest
import torch
from author_files import VIT, tokenizer_file, vit_file
from pumit.errors import CheckpointError
from pumit.inference.loading import build_from, read_model
from pumit.models.checkpoint import load_checkpoint, read_recipe
from pumit.networks.build import build_network
from pumit.networks.pumit import Anisotropy
from pumit.networks.pumit.authors import TOKENIZER
from pumit.training.segmentation.initial_weights import load_initial_weights
from torch import nn

CPU = torch.device("cpu")


def test_their_tokenizer_reconstructs_as_it_did(tmp_path):
    path = tmp_path / "tokenizer.ckpt"
    network = tokenizer_file(path, prefix="tokenizer.").eval()
    checkpoint = read_model(path, "tokenizer")
    found = build_from(checkpoint, path, CPU)
    image = torch.rand(1, 3, 8, 32, 32)
    for da0 in (0, 2):
        anisotropy = Anisotropy(da0)
        x = image if da0 else image.repeat(1, 1, 2, 1, 1)
        with torch.no_grad():
            ours, theirs = found(x, anisotropy), network(x, anisotropy)
        assert torch.equal(ours.reconstruction, theirs.reconstruction)
    assert read_recipe(path)[1] == checkpoint.sha256


def test_every_weight_of_their_tokenizer_has_a_name():
    with torch.device("meta"):
        names = build_network("pumit_tokenizer").state_dict()
    layers = {name.rpartition(".")[0] for name in names} - {"quantizer"}
    assert set(TOKENIZER.values()) == layers


def test_their_vit_predicts_as_it_did_and_begins_a_segmentation(tmp_path):
    path = tmp_path / "pumit.ckpt"
    network = vit_file(path).eval()
    found = build_from(read_model(path, "encoder"), path, CPU)
    x, anisotropy = torch.rand(1, 3, 16, 32, 32), Anisotropy(1)
    mask = torch.tensor([[True, False] * 4])
    with torch.no_grad():
        assert torch.equal(found(x, anisotropy, mask), network(x, anisotropy, mask))
    sizes = {k: VIT[k] for k in ("dim", "depth", "num_heads", "hidden")}
    segmenting = build_network(
        "pumit_segmentation_small", **sizes, taps=(1, 2, 3, 4), fixed_patch=(4, 16, 16)
    )
    load_initial_weights(segmenting, str(path))
    key = "blocks.1.attention.v.bias"
    assert torch.equal(segmenting.vit.state_dict()[key], network.state_dict()[f"vit.{key}"])


class Loud(nn.Module):
    """Not a tensor."""


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"state_dict": {"a.weight": torch.zeros(2)}}, "a network that is not known here"),
        ({"state_dict": {"a": torch.zeros(2)}, "net": Loud()}, "holds more than weights"),
        ([1, 2], "holds no named weights"),
        ({"quantize.embedding.weight": torch.zeros(4, 4), "encoder.0.weight": torch.zeros(2)},
         "not soft ones"),
    ],
)  # fmt: skip
def test_other_pickles_are_refused_in_one_line(tmp_path, content, words):
    path = tmp_path / "x.ckpt"
    torch.save(content, path)
    with pytest.raises(CheckpointError, match=words) as error:
        load_checkpoint(path)
    assert "\n" not in str(error.value)


def test_a_pickle_of_another_protocol_brings_no_warning(tmp_path):
    path = tmp_path / "x.ckpt"
    path.write_bytes(pickle.dumps(Loud(), protocol=4))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(CheckpointError, match="holds more than weights"):
            load_checkpoint(path)
    assert not caught


def test_a_file_that_lacks_a_weight_is_refused(tmp_path):
    path = tmp_path / "pumit.ckpt"
    vit_file(path)
    content = torch.load(path, weights_only=True)
    del content["state_dict"]["blocks.1.norm2.bias"]
    torch.save(content, path)
    with pytest.raises(CheckpointError, match="1 weights are missing"):
        load_checkpoint(path)
