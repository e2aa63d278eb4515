"""What calls cost on a machine: prices, comparisons of algorithms, reports of programs.

| file | what |
|---|---|
| `prediction` | predictions in one line, `nvcoll.predict` |
| `comparison` | algorithms in virtual time, `nvcoll.compare` and ``nvcoll compare`` |
| `counts` | the calls of a rank by kind, and as text |
| `price` | one call on one machine |
| `buckets` | hints on the buckets of a training step |
| `report` | the calls of a program on machines: ``nvcoll run --on``, ``NVCOLL_REPORT``, `Node.report` |
"""
