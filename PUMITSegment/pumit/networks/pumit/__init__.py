"""PUMIT: spatially adaptive convolution, tokenizer, universal ViT."""
