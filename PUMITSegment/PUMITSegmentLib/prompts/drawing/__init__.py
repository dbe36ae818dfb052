"""Drawing of prompts in the views."""
