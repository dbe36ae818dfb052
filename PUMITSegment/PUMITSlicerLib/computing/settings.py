"""Where the work is done, as the user chose it, and how the choice is remembered."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Protocol

from pumit.system.gpu_driver import has_cuda_driver

_PREFIX = "PUMIT/"


class ComputeMode(enum.Enum):
    """Machine that computes: this one or another."""

    LOCAL = "local"
    REMOTE = "remote"


@dataclass(frozen=True)
class ComputeSettings:
    """The user's settings of where and how to compute.

    Attributes:
        mode: This machine, or a server.
        model: Name from the model index, or a checkpoint file; this machine only.
        device: `auto`, `cpu`, `cuda:0`, `mps`; this machine only.
        url: The server's address.
        token: The server's bearer token.
        rememberToken: Whether the token is written to the settings file, unencrypted.
        certificateFile: PEM file that the server's certificate is checked with; "" for the
            authorities that the system trusts.
        allowUnencrypted: Whether the scan may go to a server without https, in the clear.
        wheelFolder: Folder of Python packages for a machine without network; "" for none.
        withTorch: Whether PyTorch is installed, too, for GPUs, automatic models and training; None
            where the user has not chosen.
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
        """What the user chose, or whether there is a GPU that only PyTorch computes on."""
        return has_cuda_driver() if self.withTorch is None else self.withTorch

    def isSameComputer(self, other: ComputeSettings) -> bool:
        """Whether a worker or connection made for one of the two serves the other as well."""
        if self.mode is not other.mode:
            return False
        if self.mode is ComputeMode.LOCAL:
            return (self.model, self.device) == (other.model, other.device)
        own = (self.url, self.token, self.certificateFile, self.allowUnencrypted)
        return own == (other.url, other.token, other.certificateFile, other.allowUnencrypted)


class SettingsStore(Protocol):
    """Interface of `qt.QSettings`: text under keys."""

    def value(self, key: str, default: Any = None) -> Any:
        """Return what is stored, or the default."""

    def setValue(self, key: str, value: Any) -> None:
        """Store."""

    def remove(self, key: str) -> None:
        """Forget."""


def slicer_settings() -> SettingsStore:
    """Return the user's settings of Slicer."""
    import qt

    return qt.QSettings()


def load_settings(store: SettingsStore) -> ComputeSettings:
    """Read what was remembered; what is absent or unknown takes its default."""
    defaults = ComputeSettings()

    def text(name: str) -> str:
        # An INI file turns a text with a comma into a list, and may hold anything.
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
    """Save; the token only if the user chose that, otherwise it is removed."""
    store.setValue(_PREFIX + "mode", settings.mode.value)
    for name in ("model", "device", "url", "certificateFile", "wheelFolder"):
        store.setValue(_PREFIX + name, getattr(settings, name))
    # As text: some stores give a boolean back as text, others as a boolean.
    for name in ("rememberToken", "allowUnencrypted"):
        store.setValue(_PREFIX + name, "true" if getattr(settings, name) else "false")
    if settings.withTorch is not None:
        store.setValue(_PREFIX + "withTorch", "true" if settings.withTorch else "false")
    if settings.rememberToken and settings.token:
        store.setValue(_PREFIX + "token", settings.token)
    else:
        store.remove(_PREFIX + "token")
