"""Calling tuned kernels from a program: greenfast.load, greenfast.attention and rms_norm.

This package needs the standard library only. It talks to the CUDA driver itself, and meets PyTorch,
CuPy, NumPy and JAX where a program uses them; it never imports the search or the service.
"""
