"""Recordings: sweeps of a template's space on a real GPU, one small file each."""

from greenfast.search.recordings.contents import Heading, Recording, Row, Times
from greenfast.search.recordings.shelf import find_recording, recording_names

__all__ = ["Heading", "Recording", "Row", "Times", "find_recording", "recording_names"]
