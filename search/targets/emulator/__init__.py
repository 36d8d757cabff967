"""CUDA on the CPU: the same CUDA source, compiled by the host's C++ compiler and executed one fiber a thread."""
