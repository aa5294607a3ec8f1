"""Classes of NVIDIA mlx5 (`softhca.verbs.providers`)."""

from softhca.verbs.mr_kinds import DmaBufMR


class Mlx5DmaBufMR(DmaBufMR):
    """Refused, as its base is."""
