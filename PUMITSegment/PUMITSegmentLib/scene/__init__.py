"""What of the scene is worked on."""
