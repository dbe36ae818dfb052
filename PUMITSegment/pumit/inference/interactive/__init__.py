"""Answers to prompts: a session, its fields, and how their answers are joined."""
