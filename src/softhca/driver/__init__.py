"""The host's half of the stack: from verbs to rings in host memory (the HDSD of IBTA vol. 1).

Read in this order: ``abstraction`` (what a driver offers), ``registry`` (drivers by device name), ``device``,
``session`` and ``channels`` (how it speaks to an adapter), ``memory``, ``qp`` with ``posting``, ``cq``,
``srq``, ``events``; ``services`` are recipes over several calls.
"""
