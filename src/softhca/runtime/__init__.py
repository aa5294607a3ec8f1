"""Where adapters run: the devices of a process, their engines' turns, adapter processes, fork.

Read in this order: ``specification`` (``SOFTHCA_DEVICES``), ``devices`` and ``assembly`` (what is opened),
``loop`` (a round of an engine), ``progress_thread`` and ``embedded`` (an adapter in this process), then
``messages``, ``adapter_process``, ``process``, ``server`` and ``process_main`` (one in its own), ``fork``.
"""
