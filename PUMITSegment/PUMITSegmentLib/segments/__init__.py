"""Writing, reading, naming, coding and showing segments."""
