"""The `greenfast` command, REST, the dashboard, and `wiring`, which puts the parts together."""
