"""fork(): nothing has to be prepared, registered memory is not pinned."""

from softhca.verbs.device_enums import ibv_fork_status


def fork_init() -> None:
    """Accepted and without effect: every program is safe against fork() here.

    In the child, inherited verbs objects are dead and say so; the child opens a `Context` of its own.
    """


def is_fork_initialized() -> ibv_fork_status:
    """Always ``IBV_FORK_UNNEEDED``."""
    return ibv_fork_status.IBV_FORK_UNNEEDED
