"""Classes of NVIDIA mlx5 (`softhca.verbs.providers`)."""

from softhca.verbs.absent import AbsentAttributes, AbsentObject


class Mlx5FlowMatchParameters(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""


class Mlx5FlowMatcherAttr(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5FlowMatcher(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""


class Mlx5FlowActionAttr(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5Flow(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""


class Mlx5PacketReformatFlowAction(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""
