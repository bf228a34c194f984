"""Kernels: element types, buffers, regions, tile ops, loops; printer, access analysis, interpreter."""
