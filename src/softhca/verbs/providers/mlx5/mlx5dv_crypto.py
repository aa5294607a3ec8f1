"""Classes of NVIDIA mlx5 (`softhca.verbs.providers`)."""

from softhca.verbs.absent import AbsentAttributes, AbsentObject, absent_method


class Mlx5CryptoLoginAttr(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5CryptoExtLoginAttr(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5DEKInitAttr(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5DEKAttr(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5CryptoAttr(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5DEK(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    query = absent_method


class Mlx5CryptoLogin(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    query = absent_method
