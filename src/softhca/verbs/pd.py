"""Protection domains."""

from softhca.verbs.base import Resource, translated
from softhca.verbs.device import Context
from softhca.verbs.pyverbs_error import PyverbsUserError


class PD(Resource):
    """A protection domain: regions, queue pairs and address handles of one domain may be used together."""

    def __init__(self, creator: Context) -> None:
        if creator is None:
            raise TypeError("Argument 'creator' must not be None")
        if not isinstance(creator, Context):
            raise PyverbsUserError(f"Cannot create PD from {type(creator)}")
        self._driver = creator.driver
        with translated("Failed to allocate PD"):
            self._number = self._driver.alloc_pd()
        self.ctx = creator
        self._opened(creator)

    @property
    def number(self) -> int:
        """The domain's number; raises `PyverbsUserError` when it is closed."""
        self._require_open()
        return self._number

    @property
    def handle(self) -> int:
        """The domain's number, under libibverbs' name."""
        return self.number

    def _destroy(self) -> None:
        self._driver.dealloc_pd(self._number)
