"""The engine of one host channel adapter: what stands between a host's rings and the wire, sans-IO.

Read in this order: ``engine`` (the whole and its contract), ``hosts`` (who is attached), ``commands`` and
``queue_pair_commands`` (what a host can ask for) over ``resources``, ``attributes``, ``paths``, ``rings`` and
``multicast``; then ``port``, ``scheduler``, ``timers`` and ``counters``, which are hot.  ``config`` holds
addresses and limits.
"""
