"""What the visual tokenizer says of a scan."""
