"""Classes of Amazon EFA (`softhca.verbs.providers`)."""

from softhca.verbs.absent import (
    AbsentAttributes,
    AbsentObject,
    OtherVendorDevice,
    absent_function,
    absent_method,
)


class EfaContext(OtherVendorDevice):
    """Refused with `PyverbsUserError`."""

    query_efa_device = absent_method


class EfaDVDeviceAttr(AbsentAttributes):
    """Attributes; nothing reads them."""


class EfaAH(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    query_efa_ah = absent_method


class EfaDVAHAttr(AbsentAttributes):
    """Attributes; nothing reads them."""


class SRDQP(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""


class SRDQPEx(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""


class EfaQPInitAttr(AbsentAttributes):
    """Attributes; nothing reads them."""


class EfaCQ(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    read_sgid = absent_method


class EfaDVCQInitAttr(AbsentAttributes):
    """Attributes; nothing reads them."""


dev_cap_to_str = absent_function
bitmask_to_str = absent_function
