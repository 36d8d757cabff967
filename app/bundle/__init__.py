"""Bundles: written, opened, verified."""
