"""Communicators of ranks on several hosts: nvcoll inside each host, an existing engine between hosts.

::

    communicator    the calls of `nvcoll.Communicator`
      issued_calls  in the order of issue, on threads of one kind
      records       records of a call meet before its data
      reductions    the fold of the ranks, continued from host to host
      copies        the other collectives
      messages      send and recv: the engine of this host matches them
      failures      told to all hosts
    peers           what calls use: who is where, the communicator of this host, messages to others, a deadline
    carrier         an engine that carries messages: gloo or mpi
    opening         who is where, and the first communicator

Arguments, works, groups, messages and arrays are those of the binding, as on one host.

A **host** is a machine, or a container with a network of its own. Rank i of each host talks to rank i of other hosts:
these ranks form **rail** i, and there are as many rails as the smallest host has ranks. Inside a host, bytes move by
the calls of one host; between hosts, as tagged messages of the **carrier**. nvcoll reduces itself: host h
continues the fold of host h-1, so the order of additions is that of ranks, and the bits are those of one host, at any
size and with either engine. Only ``two_level`` adds sums of hosts.
"""
