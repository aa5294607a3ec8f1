from collections.abc import Callable
from typing import TypeVar, overload

from softhca.driver.standing import Standing
from softhca.driver.work_requests import Completion
from softhca.queues.completion import CompletionReader
from softhca.queues.ring import RingLayout

MANY: int

_Kind = TypeVar("_Kind", bound=Completion)

class CompletionPoller:
    reader: CompletionReader

    def __init__(
        self,
        layout: RingLayout,
        session: Standing,
        progress: Callable[[], object],
        failed: Callable[[int], object],
    ) -> None: ...
    def acquire(self) -> None: ...
    def release(self) -> None: ...
    @overload
    def poll(self, limit: int) -> list[Completion]: ...
    @overload
    def poll(self, limit: int, kind: type[_Kind], network_order: bool = False) -> list[_Kind]: ...
