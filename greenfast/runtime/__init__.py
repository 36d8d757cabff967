"""Calling tuned kernels from a program: greenfast.load, attention, linear and rms_norm.

This package needs only the standard library and the CUDA driver, which it calls through ctypes. It
takes arrays of PyTorch, CuPy, NumPy and JAX if a program uses them, and imports neither the search
nor the service.
"""
