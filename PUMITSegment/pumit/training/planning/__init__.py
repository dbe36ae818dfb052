"""What a training will need: memory, time and sizes, estimated before it starts."""
