"""Jinja in child processes: a template is a program, and may be without end."""

LARGEST_SOURCE_CHARACTERS = 1_000_000
