"""Facts about GPUs, and the limits that they set on launches: clusters, occupancy."""
