"""Facts about GPUs, and what follows from them for a launch: clusters, occupancy."""
