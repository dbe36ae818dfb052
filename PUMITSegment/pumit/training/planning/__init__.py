"""Planning of a training: memory, time and sizes, estimated before it starts."""
