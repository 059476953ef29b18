"""Devices: the virtual machine and GPUs behind one protocol; serialized kernels."""
