from collections.abc import Callable
from typing import TypeVar, overload

from softhca.driver.liveness import Liveness
from softhca.driver.locked import Locked
from softhca.driver.work_requests import Completion
from softhca.queues.completion import CompletionReader
from softhca.queues.ring import RingLayout

MANY: int

_Kind = TypeVar("_Kind", bound=Completion)

class CompletionPoller(Locked):
    reader: CompletionReader

    def __init__(
        self,
        layout: RingLayout,
        session: Liveness,
        progress: Callable[[], object],
        failed: Callable[[int], object],
    ) -> None: ...
    def leave(self) -> None: ...
    def move_to(self, layout: RingLayout | None) -> None: ...
    def end(self) -> bool: ...
    def arm(self, solicited: bool) -> None: ...
    def drop(self, qp_num: int) -> None: ...
    def waiting(self) -> int: ...
    @overload
    def poll(self, limit: int) -> list[Completion]: ...
    @overload
    def poll(self, limit: int, kind: type[_Kind], network_order: bool = False) -> list[_Kind]: ...
