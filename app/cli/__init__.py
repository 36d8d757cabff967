"""The `greenfast` command: one file a command."""
