"""Training of the promptable network, and its fine-tuning on own scans."""
