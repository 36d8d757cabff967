"""JSON Schemas of kernel.toml and template files, for editors."""

from __future__ import annotations

from pathlib import Path

SCHEMA_FOLDER = Path(__file__).parent
