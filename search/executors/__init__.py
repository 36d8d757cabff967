"""The machines that do a search's work: this one, or on the machines of a Ray cluster."""
