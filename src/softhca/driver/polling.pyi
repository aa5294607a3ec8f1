from collections.abc import Callable
from threading import Lock
from typing import Any, TypeVar, overload

from softhca.driver.work_requests import Completion
from softhca.queues.completion import CompletionReader
from softhca.queues.ring import RingLayout

_Kind = TypeVar("_Kind", bound=Completion)

class CompletionPoller:
    reader: CompletionReader

    def __init__(
        self,
        layout: RingLayout,
        session: Any,
        progress: Callable[[], object],
        failed: Callable[[int], object],
        lock: Lock,
    ) -> None: ...
    @overload
    def poll(self, limit: int) -> list[Completion]: ...
    @overload
    def poll(self, limit: int, kind: type[_Kind]) -> list[_Kind]: ...
