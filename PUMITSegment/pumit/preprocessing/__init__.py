"""From a volume to what a network sees."""
