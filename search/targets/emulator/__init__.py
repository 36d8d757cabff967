"""CUDA on the CPU: CUDA source, compiled by the host's C++ compiler and executed one fiber a thread."""
