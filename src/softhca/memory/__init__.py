"""Who may touch which byte: page frames, address maps, protection domains, translation table, regions and
keys.

Read in this order: ``host`` (the memory itself), ``arenas`` (where a frame is in this process), ``tpt``
(what an adapter may do with a page), ``keys`` and ``regions`` (what a consumer may do with a range),
``protection``.
"""
