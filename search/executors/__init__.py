"""Where a search's work is done: on this machine, or on the machines of a Ray cluster."""
