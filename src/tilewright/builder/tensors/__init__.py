"""Tensors of a kernel: register tensors, copies, wgmma fragments."""
