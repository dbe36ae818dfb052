"""The user's compute settings, and how they are saved."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from pumit.system.gpu_driver import has_cuda_driver

_PREFIX = "PUMIT/"
SettingsStore = Any  # qt.QSettings, which has no types


class ComputeMode(enum.Enum):
    """Machine that computes: this one or a server."""

    LOCAL = "local"
    REMOTE = "remote"


@dataclass(frozen=True)
class ComputeSettings:
    """The user's compute settings.

    Attributes:
        model: Name from the model index, or a checkpoint file; this machine only.
        device: `auto`, `cpu`, `cuda:0`, `mps`; this machine only.
        token: The server's bearer token.
        rememberToken: Whether the token is saved in the settings file, unencrypted.
        certificateFile: PEM file to verify the server's certificate; "" for the system's
            authorities.
        allowUnencrypted: Whether scans may be sent to a server without https.
        wheelFolder: Folder of Python packages for a machine without network; "" for none.
        withTorch: Whether to install PyTorch, for GPUs, automatic models and training; None if
            the user has not chosen.
    """

    mode: ComputeMode = ComputeMode.LOCAL
    model: str = "default"
    device: str = "auto"
    url: str = ""
    token: str = field(default="", repr=False)
    rememberToken: bool = False
    certificateFile: str = ""
    allowUnencrypted: bool = False
    wheelFolder: str = ""
    withTorch: bool | None = None

    @property
    def wantsTorch(self) -> bool:
        """The user's choice; by default, whether there is a CUDA driver: GPUs need PyTorch."""
        return has_cuda_driver() if self.withTorch is None else self.withTorch

    def isSameComputer(self, other: ComputeSettings) -> bool:
        """Return whether both settings can use the same worker or connection."""
        if self.mode is not other.mode:
            return False
        if self.mode is ComputeMode.LOCAL:
            return (self.model, self.device) == (other.model, other.device)
        own = (self.url, self.token, self.certificateFile, self.allowUnencrypted)
        return own == (other.url, other.token, other.certificateFile, other.allowUnencrypted)


def slicer_settings() -> SettingsStore:
    """Return Slicer's user settings."""
    import qt

    return qt.QSettings()


def load_settings(store: SettingsStore) -> ComputeSettings:
    """Load the settings; absent and unknown values take their defaults."""
    defaults = ComputeSettings()

    def text(name: str) -> str:
        # An INI file turns text with a comma into a list, and may hold anything.
        value = store.value(_PREFIX + name, getattr(defaults, name))
        return value if isinstance(value, str) else str(getattr(defaults, name))

    def flag(name: str) -> bool:
        return str(store.value(_PREFIX + name, "false")).lower() in ("true", "1")

    modes = {mode.value: mode for mode in ComputeMode}
    mode = modes.get(str(store.value(_PREFIX + "mode", "")), defaults.mode)
    remember = flag("rememberToken")
    isChosen = store.value(_PREFIX + "withTorch") is not None
    texts = {name: text(name) for name in ("model", "device", "url", "certificateFile")}
    return ComputeSettings(
        mode=mode,
        token=text("token") if remember else "",
        rememberToken=remember,
        allowUnencrypted=flag("allowUnencrypted"),
        wheelFolder=text("wheelFolder"),
        withTorch=flag("withTorch") if isChosen else None,
        **texts,
    )


def save_settings(store: SettingsStore, settings: ComputeSettings) -> None:
    """Save the settings; remove the token unless the user chose to save it."""
    store.setValue(_PREFIX + "mode", settings.mode.value)
    for name in ("model", "device", "url", "certificateFile", "wheelFolder"):
        store.setValue(_PREFIX + name, getattr(settings, name))
    # As text: not all stores return a boolean as a boolean.
    for name in ("rememberToken", "allowUnencrypted"):
        store.setValue(_PREFIX + name, "true" if getattr(settings, name) else "false")
    if settings.withTorch is not None:
        store.setValue(_PREFIX + "withTorch", "true" if settings.withTorch else "false")
    if settings.rememberToken and settings.token:
        store.setValue(_PREFIX + "token", settings.token)
    else:
        store.remove(_PREFIX + "token")
