"""Kernel Tuner scripts, read by an interpreter of our own that runs none of their code."""
