"""Algorithms that users write in Python, and their parameters."""
