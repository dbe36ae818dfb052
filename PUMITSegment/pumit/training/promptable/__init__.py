"""Training and fine-tuning of the promptable network."""
