"""From prompts to masks on the volume's own grid."""
