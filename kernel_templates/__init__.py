"""The kernels that ship: data, one folder a kernel, and the device primitives in `include/gf/`."""
