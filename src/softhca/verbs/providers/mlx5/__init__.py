"""NVIDIA mlx5, which no software adapter is."""
