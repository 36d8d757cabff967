"""What authors write: kernels and their templates, read, checked and kept as frozen values."""
