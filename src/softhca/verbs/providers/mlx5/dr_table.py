"""Classes of NVIDIA mlx5 (`softhca.verbs.providers`)."""

from softhca.verbs.absent import AbsentObject


class DrTable(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""
