"""Inference engines of the promptable network: PyTorch, or OpenVINO on CPUs."""

import sys

# OpenVINO sends usage data if its telemetry package is installed. Hiding the package disables that.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
