"""Classes of NVIDIA mlx5 (`softhca.verbs.providers`)."""

from softhca.verbs.absent import AbsentObject, absent_method


class DrDomain(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    allow_duplicate_rules = dump = sync = absent_method
