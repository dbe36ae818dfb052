"""Pre-training: tokenizer, masked image modelling, contrastive learning and promptable network."""
