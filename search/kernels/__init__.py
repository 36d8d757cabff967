"""The files that authors write: kernels and their templates, read, checked and frozen."""
