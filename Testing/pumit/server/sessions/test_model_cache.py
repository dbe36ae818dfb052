"""The library's own engine offers the models of the index, by name only."""

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from known_networks import PLAN, save_model
from pumit.errors import CheckpointError, ConsentNeeded
from pumit.models import index
from pumit.models.checkpoint import save_checkpoint
from pumit.models.consent import accept
from pumit.models.user_index import register
from pumit.networks.build import build_network
from pumit.prompts import PointPrompt
from pumit.server.sessions.engine import SegmenterEngine
from pumit.system.watch import Watch
from pumit.volume import Volume

pytestmark = pytest.mark.usefixtures("known_networks")

SIZES = {"widths": [4, 8, 8], "num_tokens": 16, "groups": 2}


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's index with an automatic model, a tokenizer and what no viewer can show."""
    plan = {**PLAN, "intensity": {"method": "range", "source": [0, 100], "target": [0, 1]}}
    save_model(tmp_path / "bright.safetensors", plan=plan)
    recipe = {"name": "tokens", "version": "1", "network": "pumit_tokenizer", "sizes": SIZES}
    state = build_network("pumit_tokenizer", **SIZES).state_dict()
    save_checkpoint(tmp_path / "tokens.safetensors", state, recipe)
    for name, network in (("shapes", "pumit_classifier_b"), ("vit", "pumit_vit_b_mim")):
        recipe = {"name": name, "network": network, "classes": [{"name": "a"}]}
        save_checkpoint(tmp_path / f"{name}.safetensors", {}, recipe)
    rows = [
        {
            "name": name,
            "file": f"{name}.safetensors",
            "sha256": "0" * 64,
            "kind": kind,
            "description": "A test.",
            "licence": "CC0",
            "source": "package",
        }
        for name, kind in (
            ("bright", "automatic"),
            ("shapes", "classifier"),
            ("tokens", "tokenizer"),
            ("vit", "encoder"),
        )
    ]
    (tmp_path / "index.yaml").write_text(yaml.safe_dump({"models": rows}))
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path))
    monkeypatch.setattr(index, "package_folder", lambda: tmp_path / "none")
    return tmp_path


@pytest.fixture
def engine(models: Path, tiny_checkpoint: Path) -> SegmenterEngine:
    return SegmenterEngine(str(tiny_checkpoint), device="cpu")


def scan() -> Volume:
    array = np.random.default_rng(0).integers(0, 100, (8, 20, 20)).astype(np.int16)
    return Volume(array, (2.0, 1.0, 1.0))


def test_the_engine_offers_its_own_model_and_those_of_the_index(engine):
    found = [(card.name, card.kind) for card in engine.models()]
    assert found == [("tiny", "promptable"), ("bright", "automatic"), ("tokens", "tokenizer")]
    assert engine.version_of("bright") == "3"


@pytest.mark.slow
def test_each_kind_answers_on_the_session_s_volume(engine):
    session = engine.open_session()
    volume = scan()
    session.set_volume(volume)
    found = engine.segment_automatically(session, "bright")
    assert np.mean((found.labels == 2) == (volume.array > 70)) > 0.98
    everything = engine.segment_automatically(session, "tiny")
    assert everything.labels.shape == volume.shape
    back = engine.reconstruct(session)
    assert back.image.shape == volume.shape
    assert len(back.use.shares) == 16


def test_nobody_changes_the_voxels_that_sessions_share(engine):
    volume = scan()
    volume = Volume(volume.array.astype(np.float32), volume.spacing_mm)
    before = volume.array.copy()
    first, second = engine.open_session(), engine.open_session()
    first.set_volume(volume)
    second.set_volume(Volume(before.copy(), volume.spacing_mm))
    first.add_prompt(PointPrompt(tuple(volume.index_to_world((4, 10, 10)).tolist())))
    first.predict()
    for model in ("bright", "tiny"):
        engine.segment_automatically(first, model)
    engine.reconstruct(first)
    assert second.volume.array is volume.array
    np.testing.assert_array_equal(second.volume.array, before)


def test_models_report_outside_of_autocast(engine):
    session = engine.open_session()
    session.set_volume(scan())
    seen = []

    def look(*seen_shares: float) -> bool:
        seen.append(torch.is_autocast_enabled())
        return False

    for model in ("bright", "tiny"):
        engine.segment_automatically(session, model, watch=Watch(look, look))
    engine.reconstruct(session, watch=Watch(look, look))
    assert len(seen) > 6
    assert not any(seen)


def test_no_path_and_no_other_kind_is_taken_for_a_model(engine, models):
    session = engine.open_session()
    session.set_volume(scan())
    for name in (str(models / "bright.safetensors"), "bright.safetensors", "tokens", "nobody"):
        with pytest.raises(CheckpointError, match="it offers: tiny, bright"):
            engine.segment_automatically(session, name)
    with pytest.raises(CheckpointError, match="it offers: tokens"):
        engine.reconstruct(session, "bright")


def test_without_a_tokenizer_the_engine_explains(engine, models):
    (models / "tokens.safetensors").unlink()
    session = engine.open_session()
    session.set_volume(scan())
    with pytest.raises(CheckpointError, match="No tokenizer is installed"):
        engine.reconstruct(session)


def test_a_damaged_index_keeps_nobody_from_clicking(engine, models):
    (models / "index.yaml").write_text("models: 3")
    assert [card.name for card in engine.models()] == ["tiny"]


def test_a_running_worker_offers_what_was_trained_since(engine, models, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    plan = {**PLAN, "intensity": {"method": "range", "source": [0, 100], "target": [0, 1]}}
    name = register(save_model(run / "new.safetensors", plan=plan))
    assert name in [card.name for card in engine.models()]
    session = engine.open_session()
    session.set_volume(scan())
    bright = (engine.segment_automatically(session, name).labels == 2).sum()
    # The run continues, and its model is loaded again.
    plan = {**PLAN, "intensity": {"method": "range", "source": [0, 50], "target": [0, 1]}}
    assert register(save_model(run / "new.safetensors", plan=plan)) == name
    assert (engine.segment_automatically(session, name).labels == 2).sum() > 1.5 * bright


def test_a_promptable_model_of_the_user_s_is_chosen_by_name(models, tiny_checkpoint):
    name = register(tiny_checkpoint, name="tuned")
    engine = SegmenterEngine(name, device="cpu")
    assert engine.info.name == "tuned"
    assert engine.models()[0].kind == "promptable"


def test_only_what_the_operator_agreed_to_is_offered(models, tiny_checkpoint):
    rows = yaml.safe_load((models / "index.yaml").read_text())["models"]
    rows[0]["licence"] = "CC BY-NC-SA 4.0"
    (models / "index.yaml").write_text(yaml.safe_dump({"models": rows}))
    engine = SegmenterEngine(str(tiny_checkpoint))
    assert "bright" not in [card.name for card in engine.models()]
    session = engine.open_session()
    scan = np.random.default_rng(0).normal(50, 20, (8, 32, 32)).astype(np.float32)
    session.set_volume(Volume(scan, (2.0, 1.0, 1.0)))
    with pytest.raises(ConsentNeeded, match="pumit models accept bright"):
        engine.plan_search(session, "liver")
    with pytest.raises(CheckpointError, match="offers no model 'bright'"):
        engine.segment_automatically(session, "bright")
    accept("bright")
    search = engine.plan_search(session, "liver", anyway=True)
    found = engine.run_search(session, search)
    assert found.mask.any()
    assert found.licence == "CC BY-NC-SA 4.0"
