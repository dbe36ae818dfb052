"""Engines: what computes the promptable network, PyTorch or a runtime made for CPUs."""

import sys

# OpenVINO reports its use to its makers where its telemetry package is installed, and does without
# where it is not: here it never sends anything.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
