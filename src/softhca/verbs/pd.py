"""Protection domains."""

from softhca.verbs.base import Resource, require, translated
from softhca.verbs.device import Context


class PD(Resource):
    """A protection domain: regions, queue pairs and address handles of one domain may be used together."""

    def __init__(self, creator: Context) -> None:
        require(creator, Context, "creator")
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
