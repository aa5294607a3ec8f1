"""Classes of NVIDIA mlx5 (`softhca.verbs.providers`)."""

from softhca.verbs.absent import AbsentAttributes, AbsentObject, absent_method


class Mlx5MkeyConfAttr(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5MrInterleaved(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5Mkey(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    lkey = max_entries = mkey_check = rkey = absent_method


class Mlx5SigCrc(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5SigT10Dif(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5SigBlockDomain(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5SigBlockAttr(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5SigErr(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5MkeyErr(AbsentAttributes):
    """Attributes; nothing reads them."""
