"""Settings are remembered; the token only where the user chose so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_compute import MemoryStore
from PUMITSlicerLib.computing.settings import (
    ComputeMode,
    ComputeSettings,
    load_settings,
    save_settings,
    slicer_settings,
)

CHOSEN = ComputeSettings(
    ComputeMode.REMOTE,
    model="mine",
    device="cuda:1",
    url="https://gpu.example:8443",
    token="a-token-0123456789",
    rememberToken=True,
    certificateFile="/ca.pem",
    allowUnencrypted=True,
    wheelFolder="/wheels, all",
)


def test_an_empty_store_gives_the_defaults():
    assert load_settings(MemoryStore()) == ComputeSettings()


def test_a_token_that_shall_not_be_remembered_is_nowhere():
    store = MemoryStore()
    save_settings(store, CHOSEN)
    save_settings(store, replace(CHOSEN, rememberToken=False))
    assert CHOSEN.token not in map(str, store.values.values())
    assert load_settings(store) == replace(CHOSEN, rememberToken=False, token="")


def test_a_token_is_not_in_the_text_of_the_settings():
    assert CHOSEN.token not in repr(CHOSEN)


@pytest.mark.parametrize("nonsense", [["a", "b"], 7, None, b"x"])
def test_nonsense_in_the_store_gives_the_defaults(nonsense):
    store = MemoryStore()
    save_settings(store, CHOSEN)
    store.values = dict.fromkeys(store.values, nonsense)
    assert load_settings(store) == ComputeSettings()


def test_only_what_matters_to_a_connection_needs_another_one():
    local = ComputeSettings()
    assert local.isSameComputer(replace(local, url="https://x", token="y", wheelFolder="z"))
    assert not local.isSameComputer(replace(local, device="cpu"))
    assert not local.isSameComputer(replace(local, mode=ComputeMode.REMOTE))
    assert CHOSEN.isSameComputer(replace(CHOSEN, model="other", rememberToken=False))
    assert not CHOSEN.isSameComputer(replace(CHOSEN, token="another"))
    assert not CHOSEN.isSameComputer(replace(CHOSEN, allowUnencrypted=False))


def test_slicers_own_settings_hold_them(slicerApp):
    store = slicer_settings()
    save_settings(store, CHOSEN)
    store.sync()
    assert load_settings(slicer_settings()) == CHOSEN
    save_settings(store, ComputeSettings())
    assert load_settings(slicer_settings()) == ComputeSettings()
