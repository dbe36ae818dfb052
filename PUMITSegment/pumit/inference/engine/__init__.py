"""Engines: what computes the promptable network, PyTorch or a runtime made for CPUs."""

import sys

# OpenVINO loads what could tell its makers of its use where that is installed, and does without
# where it is not: nothing is sent from here, asked or unasked.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
