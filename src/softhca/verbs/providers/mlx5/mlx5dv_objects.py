"""Classes of NVIDIA mlx5 (`softhca.verbs.providers`)."""

from softhca.verbs.absent import AbsentAttributes


class Mlx5DvPD(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5DvCQ(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5DvQP(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5DvSRQ(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5DvObj(AbsentAttributes):
    """Attributes; nothing reads them."""
