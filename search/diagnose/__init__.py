"""Tools that explain a kernel: checks, brought kernels, probes, the album, profiles."""
