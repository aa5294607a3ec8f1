"""Protection domains, and parent domains over them."""

import errno
from collections.abc import Callable, Sequence
from typing import Any

from softhca.verbs.absent import refuse
from softhca.verbs.base import PyverbsObject, Resource, creating, read_only, require, translated
from softhca.verbs.device import Context
from softhca.verbs.device_enums import ibv_parent_domain_init_attr_mask
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.sharing import element_of
from softhca.verbs.structures import INT32, UINT32, UINT64
from softhca.verbs.wr import SGE

_MASKS = ibv_parent_domain_init_attr_mask
_UNPROTECTED = int(_MASKS.IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC)
_ALLOCATORS = int(
    _MASKS.IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | _MASKS.IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT
)


class Identified(Resource):
    """What has a device and a domain of its own, once they are known: an identifier of RDMA CM."""

    __slots__ = ()

    @property
    def context(self) -> Context | None:
        """The device."""
        raise NotImplementedError

    @property
    def pd(self) -> "PD | None":
        """The domain."""
        raise NotImplementedError


class PD(Resource):
    """A protection domain: regions, queue pairs and address handles of one domain may be used together.

    ``handle`` makes an import of the domain of the creator's device that has it (`sharing`).  Of a
    `softhca.verbs.cmid.CMID` that knows its device it is that one's domain, which stays when this object is
    closed.
    """

    __slots__ = ("_ctx", "_foreign", "_number", "_original", "companion")
    ctx: Context = read_only("_ctx", "The device.")
    companion: Any  # what stands on the domain, and goes with it, for whoever makes it

    def __init__(self, creator: "Context | Identified", *, handle: int | None = None) -> None:
        if creator is None:
            raise TypeError("Argument 'creator' must not be None")
        if isinstance(creator, Identified):
            self._join(creator)
            return
        if not isinstance(creator, Context):
            raise PyverbsUserError(f"Cannot create PD from {type(creator)}")
        self._driver = creator.driver
        self._ctx = creator
        self._original: PD | None = None
        self._foreign = handle is not None and creator.source.is_foreign and creator.source is creator
        if self._foreign:
            with translated("Failed to import PD"):
                self._number = UINT32(handle)
                self._driver.import_pd(self._number)
            self._opened(creator)
            return
        if handle is not None:
            self._original = element_of(creator.source, PD, handle, "PD")
            self._number = self._original.number
            self._opened(creator, self._original)
            return
        with creating("Failed to allocate PD"):
            self._number = self._driver.alloc_pd()
            self._opened(creator)

    def _join(self, creator: "Identified") -> None:
        """Be another name of an identifier's domain."""
        context, domain = creator.context, creator.pd
        if context is None or domain is None:
            raise PyverbsUserError("Cannot create PD: the CMID is bound to no device")
        self._driver, self._ctx, self._original = domain._driver, context, domain
        self._foreign = False
        self._number = domain.number
        self._opened(context, domain)

    @property
    def number(self) -> int:
        """The domain's number; raises `PyverbsUserError` when it is closed."""
        self._require_open()
        return self._number

    @property
    def handle(self) -> int:
        """The domain's number, under libibverbs' name."""
        return self.number

    @property
    def pd(self) -> "PD":
        """The domain itself."""
        self._require_open()
        return self

    def unimport(self) -> None:
        """Let go of an imported domain; ``EINVAL`` for one that was made here."""
        if self._original is None and not self._foreign:
            raise PyverbsRDMAError("Failed to unimport PD: it was made here", errno.EINVAL)
        self.close()

    @property
    def is_foreign(self) -> bool:
        """Whether it is an import of another process's domain."""
        return self._foreign

    @property
    def lending(self) -> dict[str, Any]:
        """What the driver is told of allocators of its own: nothing."""
        return {}

    @property
    def source(self) -> "PD":
        """The domain that this one is an import of, or itself."""
        return self._original or self

    def advise_mr(
        self, advise: int, flags: int, sg_list: Sequence[Any], num_sge: int | None = None
    ) -> None:
        """Bring pages of regions on demand; ``sg_list`` (the first ``num_sge``) says of which keys and bytes.

        ``advise`` (``ibv_advise_mr_advice``): to be read, to be written, or only those that are there, for
        which nothing is done.  ``flags``: with ``IBV_ADVISE_MR_FLAG_FLUSH`` a range that is not mapped is an
        error.  `PyverbsRDMAError`: ``EOPNOTSUPP`` for another advice, ``EINVAL`` for other flags, no element
        or a region that is not on demand, ``EFAULT`` for a key that names no region of this domain or a range
        outside of it.
        """
        self._require_open()
        count = len(sg_list) if num_sge is None else INT32(num_sge)
        if count > len(sg_list):
            raise IndexError(f"num_sge is {count}, the scatter/gather list has {len(sg_list)}")
        named = sg_list[: max(count, 0)]
        for sge in named:
            require(sge, SGE, "sg_list")
        elements = [(sge.addr, sge.length, sge.lkey) for sge in named]
        with translated("Failed to advise MR"):
            self._driver.advise_mr(self.number, UINT32(advise), UINT32(flags), elements)

    def _destroy(self) -> None:
        if self._foreign:
            self._driver.unimport_pd(self._number)
        elif self._original is None:
            self._driver.dealloc_pd(self._number)


class ParentDomainContext(PyverbsObject):
    """What allocates and frees memory of a parent domain's objects; ``user_data`` is the program's own.

    ``alloc_func(pd, context, size, alignment, resource_type)`` gives an address, 0 where it has none, or
    ``_IBV_ALLOCATOR_USE_DEFAULT``; ``free_func(pd, context, address, resource_type)`` takes it back.
    """

    __slots__ = ("p_alloc", "p_free", "pd", "user_data")

    def __init__(
        self,
        pd: PD | None,
        alloc_func: Callable[..., int],
        free_func: Callable[..., object],
        user_data: object = None,
    ) -> None:
        if pd is not None:
            require(pd, PD, "pd")
        self.pd = pd
        self.p_alloc = alloc_func
        self.p_free = free_func
        self.user_data = user_data


class ParentDomainInitAttr(PyverbsObject):
    """What a parent domain is made of.  ``comp_mask`` has the bits of allocators where there is a
    ``pd_context``, and must not have them where there is none.
    """

    __slots__ = ("_comp_mask", "pd", "pd_context")

    def __init__(self, pd: PD, pd_context: ParentDomainContext | None = None, comp_mask: int = 0) -> None:
        require(pd, PD, "pd")
        if pd_context is not None:
            require(pd_context, ParentDomainContext, "pd_context")
        self.pd = pd
        self.pd_context = pd_context
        self._comp_mask = UINT32(comp_mask)
        if pd_context is not None:
            self._comp_mask |= _ALLOCATORS
        elif self._comp_mask & _ALLOCATORS:
            raise PyverbsUserError("comp_mask bits ALLOCATORS/PD_CONTEXT require pd_context to be provided")

    @property
    def comp_mask(self) -> int:
        """``ibv_parent_domain_init_attr_mask``."""
        return self._comp_mask


class _Allocator:
    """A parent domain's allocators, as the driver calls them.  What a callback raises is logged, for nobody
    can get it; an allocation has failed then."""

    def __init__(self, context: ParentDomainContext) -> None:
        self._context = context

    def allocate(self, length: int, alignment: int, kind: int) -> int:
        """`RingAllocator.allocate`."""
        given = self._call(self._context.p_alloc, length, alignment, kind)
        try:
            return UINT64(given) if given is not None else 0
        except (TypeError, OverflowError) as error:
            self._report(error, self._context.p_alloc)
            return 0

    def free(self, address: int, kind: int) -> None:
        """`RingAllocator.free`."""
        self._call(self._context.p_free, address, kind)

    def _call(self, function: Callable[..., Any], *arguments: int) -> Any:
        try:
            return function(self._context.pd, self._context, *arguments)
        except Exception as error:
            self._report(error, function)
            return None

    def _report(self, error: Exception, function: object) -> None:
        self._context.logger.error("ignored, in an allocator: %r", function, exc_info=error)


class ParentDomain(PD):
    """A protection domain under another name: what is made on it is made on ``attr.pd``.

    Queues that are made on it stand in memory that its allocators give: page-aligned, whole pages, freed when
    the queue is closed, or, where the device has died, when no object is left that knows them.  A resource
    type of 1 is a queue pair's ring, 4 a shared receive queue's, 5 a completion queue's.  Where the adapter
    is another process's, pages that it shares are put in place of the program's until then.
    ``IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC`` allows what a confidential guest needs for
    devices outside of it; this one is inside, so that it changes nothing.  ``EOPNOTSUPP`` for another bit in
    ``comp_mask``.
    """

    __slots__ = ("_allocator", "_pd_context", "_protection_domain")
    pd_context: ParentDomainContext | None = read_only("_pd_context", "Its allocators.")
    protection_domain: PD = read_only("_protection_domain", "The domain that it stands on.")

    def __init__(self, context: Context, attr: ParentDomainInitAttr) -> None:
        require(context, Context, "context")
        require(attr, ParentDomainInitAttr, "attr")
        if attr.comp_mask & ~(_UNPROTECTED | _ALLOCATORS):
            refuse("Failed to allocate Parent Domain")
        if attr.pd.ctx is not context:
            raise PyverbsRDMAError(
                "Failed to allocate Parent Domain: pd belongs to another context", errno.EINVAL
            )
        self._driver = context.driver
        self._original = None
        self._foreign = False
        self._number = attr.pd.number
        self._protection_domain = attr.pd
        self._pd_context = attr.pd_context
        self._allocator = _Allocator(attr.pd_context) if attr.pd_context is not None else None
        self._ctx = context
        self._opened(context, attr.pd)

    @property
    def lending(self) -> dict[str, Any]:
        """What the driver is told of its allocators."""
        return {} if self._allocator is None else {"allocator": self._allocator}

    def _destroy(self) -> None:
        """The protection domain stays."""
