class Liveness:
    __slots__: tuple[str, ...]
    active: bool
    dead: str

    def __init__(self) -> None: ...
    def check(self) -> None: ...
