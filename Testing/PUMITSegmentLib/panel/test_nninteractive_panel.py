"""The panel on an nnInteractive server: its settings, and what it says that is not offered."""

from typing import Any

import pytest
from nninteractive_server import serve_nninteractive
from panel_scene import Panel


@pytest.fixture
def remote(panel: Panel) -> Panel:
    """The panel with its section on computing open, for a server."""
    panel.ui.computeSection.collapsed = False
    panel.ui.computeWhereSelector.currentIndex = 1
    # A question about an installation would come before each connection.
    panel.logic.compute._whyNotInstalled = lambda mode: ""
    return panel


def give(panel: Panel, url: str, token: str = "") -> None:
    panel.ui.remoteUrlEdit.text = url
    panel.ui.remoteTokenEdit.text = token
    panel.ui.remoteTokenEdit.editingFinished.emit()


def wait(panel: Panel, condition: Any) -> None:
    from Qt import QtTest

    for _ in range(400):
        if condition():
            return
        QtTest.QTest.qWait(20)
    raise AssertionError(panel.ui.statusLabel.text)


def test_an_unencrypted_connection_is_allowed_by_hand_and_warned_of(remote):
    ui, compute = remote.ui, remote.logic.compute
    give(remote, "http://gpu.invalid:1527")
    assert ui.allowUnencryptedCheckBox.isVisible()
    assert not ui.allowUnencryptedCheckBox.checked
    assert not ui.unencryptedLabel.isVisible()
    assert "anybody on the network" in ui.allowUnencryptedCheckBox.toolTip
    remote.press(ui.testButton)
    wait(remote, lambda: "must be reached by https" in ui.statusLabel.text)
    ui.allowUnencryptedCheckBox.click()
    assert compute.settings.allowUnencrypted
    assert ui.unencryptedLabel.isVisible()
    assert "can be read on its way" in ui.unencryptedLabel.text
    give(remote, "https://gpu.invalid:1527")
    assert not ui.unencryptedLabel.isVisible()
    ui.computeWhereSelector.currentIndex = 0
    assert not ui.allowUnencryptedCheckBox.isVisible()


def test_the_licence_is_shown_and_what_is_not_offered_is_said(remote):
    ui, compute = remote.ui, remote.logic.compute
    remote.load()
    with serve_nninteractive(key=None) as server:
        give(remote, server.url)
        remote.press(ui.testButton)
        wait(remote, lambda: "licence of its model: CC BY-NC-SA 4.0" in ui.statusLabel.text)
        connected: list[Any] = []
        compute.ensureReady(lambda: connected.append(True), connected.append)
        wait(remote, lambda: connected)
        assert connected == [True]
        assert "CC BY-NC-SA 4.0" in ui.computeStateLabel.text
        assert ui.memoryLabel.text == "Not reported by this server"
        for button, label in (
            (ui.automaticButton, ui.automaticLabel),
            (ui.tokenizerButton, ui.tokenizerLabel),
        ):
            assert not button.enabled
            assert "nnInteractive server does not offer" in label.text
            assert "\n" not in label.text
        compute.stop()
