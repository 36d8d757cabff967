"""The emulator's checks on public suites whose files carry labels, from checkouts given by path."""
