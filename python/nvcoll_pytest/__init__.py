"""A plugin of pytest: ``@pytest.mark.ranks(4)`` runs a test on each of four ranks.

pytest imports `plugin` in every run of a user who has nvcoll. So this package stands beside ``nvcoll``, and imports
neither nvcoll nor torch until a marked test runs.

| file | subject |
|---|---|
| `plugin` | options, the mark, what pytest sees of a marked test |
| `pool` | the processes of the ranks, which stay from test to test |
| `worker` | a process: a pytest session that runs the tests that its parent names |
| `setting` | what a worker does before and after a test: process group, last calls |
| `verdict` | one result out of the results of all ranks |
"""
