"""Which kernels serve a set of workloads, and the rule that picks one of them for a shape."""
