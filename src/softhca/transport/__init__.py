"""Requester and responder state machines of the transport services, sans-IO (IBTA vol. 1, chapter 9).

Read in this order: ``states`` and ``services`` (literal tables), ``context`` (the queue pair and its
contract), ``requester`` → ``segmentation`` → ``acknowledgement`` → ``retry`` and ``window`` (the way out
of a work request), then ``responder`` → ``execution`` → ``replay`` → ``replies`` (the way in of a packet),
``unreliable`` and ``datagram``.
"""
