"""A constraint-solver schedule explorer and autotuner for GPU tile kernels."""
