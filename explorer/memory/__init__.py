"""Footprint arithmetic and placement of on-chip buffers."""
