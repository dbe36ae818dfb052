"""The promptable network: image encoder, prompt encoder, mask decoder."""
