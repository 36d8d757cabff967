"""Candidates, and the valid points of a template on a device."""
