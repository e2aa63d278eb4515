"""Communicators of ranks on several hosts: nvcoll inside each host, an existing engine between hosts.

::

    communicator    the calls of `nvcoll.Communicator`
      issued_calls  in the order of issue, on threads of one kind
      records       records of a call meet before its data
      reductions    the fold of the ranks, continued from host to host
      copies        the other collectives
      messages      send and recv: the engine of this host matches them
      failures      sent to all hosts
    peers           what calls use: who is where, the communicator of this host, messages to others, a deadline
    carrier         an engine that carries messages: gloo or mpi
    opening         who is where, and the first communicator

Arguments, works, groups, messages and arrays are the binding's, as on one host.

A **host** is a machine, or a container with a network of its own. Rank i of each host talks to rank i of other hosts:
these ranks form **rail** i. The number of rails is the number of ranks of the smallest host. Inside a host, bytes move
by the calls of one host; between hosts, as tagged messages of the **carrier**. nvcoll reduces itself: host h continues
the fold of host h-1, so additions are in rank order, and the bits are the same as on one host, at any size and with
both engines. Only ``two_level`` adds sums of hosts.
"""
