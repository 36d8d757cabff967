"""CUDA on the CPU: CUDA source, built by the host's C++ compiler; a fiber per thread runs it."""
