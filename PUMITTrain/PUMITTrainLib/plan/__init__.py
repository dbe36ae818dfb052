"""What is to be trained: the recipe, its plan and its checks."""
