"""Recipes: the shipped YAML files, and how a recipe is read and written."""
