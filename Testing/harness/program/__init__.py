"""The application: its start, main window, modules and layout, and what it leaves behind."""
