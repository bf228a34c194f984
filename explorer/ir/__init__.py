"""Kernels: element types, buffers, tile ops, loops; printer, access analysis, interpreter."""
