"""The CUDA device: compile with NVRTC, load and launch with CuPy, time with events."""
