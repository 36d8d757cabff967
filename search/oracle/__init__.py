"""Correct outputs: the cases that candidates run on, their memory layout, and their references."""
