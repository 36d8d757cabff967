"""The service: the `greenfast` command, REST, the dashboard, and the one place where parts are put together."""
