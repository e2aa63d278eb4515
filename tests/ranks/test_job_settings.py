"""Where a process learns its rank: arguments, nvcoll's variables, and the variables of every launcher of the table."""

import dataclasses
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nvcoll
from nvcoll.hosts.opening import PRETEND
from nvcoll.ranks.job import TOKEN, TOKEN_BYTES, environment_of, fresh, settings
from nvcoll.ranks.launchers import LAUNCHERS, OTHERS, OURS, name_of_job

PAGE = (Path(__file__).parents[2] / "docs" / "run" / "launching.md").read_text()
NOT_PODS = [row for row in OTHERS if not row.numbers_pods]
NAMED = {row.name: row for row in LAUNCHERS}

places = st.integers(2, 64).flatmap(lambda size: st.tuples(st.integers(0, size - 1), st.just(size)))
rows = st.sampled_from(LAUNCHERS)
others = st.sampled_from(OTHERS)


def variables_of(row, rank, world_size, *, here=None, hosts=1, job="name"):
    """The variables that a launcher sets; a name of the job in each of its variables."""
    found = {name: job for name in row.job}
    found |= {row.rank[0]: str(rank), row.world_size[0]: str(world_size)}
    found |= {name: str(world_size if here is None else here) for name in row.local_size}
    found |= {name: str(hosts) for name in row.hosts}
    if row.numbers_pods:
        found[OURS.job[0]] = job
    return found


def refused(environ=None, **arguments):
    """The message of settings that are refused."""
    with pytest.raises(nvcoll.InvalidArgument) as error:
        settings(**arguments, environ=environ or {})
    return str(error.value)


@given(rows, places)
def test_every_launcher_of_the_table_gives_rank_and_world_size(row, place):
    found = settings(environ=variables_of(row, *place))
    assert (found.rank, found.world_size, found.launcher) == (*place, row.name)
    assert "name" in found.job and found.token is None


@given(rows, places, places)
def test_arguments_win_over_every_launcher(row, place, told):
    found = settings(*place, "mine", variables_of(row, *told))
    assert (found.rank, found.world_size, found.job, found.launcher) == (*place, "mine", None)


@given(others, places, places)
def test_the_variables_of_nvcoll_win_over_every_launcher(row, place, told):
    found = settings(environ=variables_of(row, *told) | variables_of(OURS, *place, job="mine"))
    assert (found.rank, found.world_size, found.job, found.launcher) == (*place, "mine", "nvcoll")


@given(st.sampled_from(NOT_PODS), st.sampled_from(NOT_PODS), places)
def test_launchers_that_say_the_same_are_fine(one, other, place):
    found = settings(environ=variables_of(one, *place) | variables_of(other, *place))
    assert (found.rank, found.world_size) == place


@given(st.lists(st.sampled_from(NOT_PODS), min_size=2, max_size=2, unique=True), places, places)
def test_launchers_that_contradict_each_other_are_both_named(pair, place, other):
    if place == other:
        return
    message = refused(variables_of(pair[0], *place) | variables_of(pair[1], *other))
    which = 0 if place[0] != other[0] else 1
    for row, told in zip(pair, (place, other), strict=True):
        name = (row.rank, row.world_size)[which][0]
        assert f"{name}={told[which]} ({row.name})" in message
    assert "contradict" in message and "set NVCOLL_RANK and NVCOLL_WORLD_SIZE" in message


@given(others, places)
def test_launchers_say_that_ranks_are_on_several_hosts(row, place):
    assert settings(environ=variables_of(row, *place)).several_hosts is None
    for environ, names in (
        (variables_of(row, *place, here=place[1] - 1), row.local_size),
        (variables_of(row, *place, hosts=2), row.hosts),
    ):
        if names:
            found = settings(environ=environ)
            assert found.several_hosts.startswith(f"{row.world_size[0]}={place[1]}") and found.has_mpi == row.has_mpi
            assert f"{names[0]}={environ[names[0]]}" in found.several_hosts
            assert settings(*place, environ=environ).several_hosts == found.several_hosts
            of_a_host = settings(0, 2, environ=environ | {OURS.job[0]: "one of each host"})
            assert of_a_host.world_size == 2 and of_a_host.several_hosts is None


def test_ranks_without_a_name_of_their_job_meet_at_the_master():
    meets = {"MASTER_ADDR": "node0"}
    pods = {"JOB_COMPLETION_INDEX": "1", "WORLD_SIZE": "2"}
    for environ in ({"NVCOLL_RANK": "1", "NVCOLL_WORLD_SIZE": "2"}, pods, {"RANK": "1", "WORLD_SIZE": "2"}):
        assert settings(environ=environ | meets).several_hosts.endswith("MASTER_ADDR=node0")
        assert settings(environ=environ | meets | {OURS.job[0]: "a", "LOCAL_WORLD_SIZE": "2"}).several_hosts is None
    torch_like = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    assert settings(environ=torch_like).several_hosts is None
    assert settings(environ=torch_like | {PRETEND: "1"}).several_hosts == f"{PRETEND}=1"
    assert settings(0, 1, environ=meets).several_hosts is None


@pytest.mark.parametrize("row", LAUNCHERS, ids=lambda row: row.name)
def test_a_rank_without_a_world_size_and_the_reverse_are_refused(row):
    if row.started != ("SLURM_STEP_NUM_TASKS",):
        message = refused({row.rank[0]: "1"})
        assert message.startswith(f"{row.rank[0]}=1 is given without a world size: set {row.world_size[0]}")
        assert message.endswith("or pass `world_size`") and "NVCOLL_WORLD_SIZE" in message
    if not row.numbers_pods:
        message = refused({row.world_size[0]: "4"})
        assert message.startswith(f"{row.world_size[0]}=4 is given without a rank: set {row.rank[0]}")
        assert message.endswith("or pass `rank`") and "NVCOLL_RANK" in message


def test_arguments_without_the_other_one_are_refused():
    assert refused(rank=1).startswith(
        "rank=1 is given without a world size: set NVCOLL_WORLD_SIZE, or pass `world_size`"
    )
    assert refused(world_size=2).startswith("world_size=2 is given without a rank: set NVCOLL_RANK, or pass `rank`")
    assert "no rank or world size" in refused(job="mine") and "no rank" in refused({OURS.job[0]: "mine"})


def test_what_an_argument_leaves_open_comes_from_the_environment():
    torchrun = variables_of(NAMED["torchrun"], 1, 4)
    found = settings(rank=2, environ=torchrun)
    assert (found.rank, found.world_size, found.launcher) == (2, 4, None)
    found = settings(world_size=8, environ=torchrun)
    assert (found.rank, found.world_size, found.launcher) == (1, 8, "torchrun")


@given(rows, st.sampled_from(["x", "-1", "1.0", "1e3", "0x1", "٣", "9" * 5000, " 1"]), st.booleans())
def test_what_is_no_number_is_refused_by_name(row, text, is_rank):
    name = (row.rank if is_rank else row.world_size)[0]
    assert refused(variables_of(row, 0, 2) | {name: text}).startswith(f"{name}={text} is no number")


@given(rows, st.integers(1, 64), st.integers(0, 3))
def test_a_rank_that_is_not_below_the_world_size_is_refused(row, world_size, more):
    message = refused(variables_of(row, world_size + more, world_size))
    assert message.startswith(f"{row.rank[0]}={world_size + more} is no rank of {row.world_size[0]}={world_size}")


def test_arguments_out_of_range_are_refused():
    assert "rank=2 is no rank of world_size=2: pass 0 to 1" in refused(rank=2, world_size=2)
    assert "a job has at least one rank" in refused(rank=0, world_size=0)
    assert "`rank` is -1" in refused(rank=-1, world_size=2)
    assert "`world_size` is 'two'" in refused(rank=0, world_size="two")
    assert "`job` is ''" in refused(rank=0, world_size=1, job="")


def test_without_a_launcher_a_process_is_alone_in_a_job_of_its_own():
    found = [settings(environ={}) for _ in range(2)]
    assert [(one.rank, one.world_size, one.launcher) for one in found] == [(0, 1, None)] * 2
    assert found[0].job != found[1].job
    assert settings(0, 1, environ={}).job != settings(0, 1, environ={}).job


@given(rows)
def test_a_variable_that_is_set_to_nothing_is_not_set(row):
    empty = {name: "" for name in variables_of(row, 0, 2)}
    assert settings(environ=empty).world_size == 1


def test_several_ranks_need_a_name_of_their_job():
    assert "there is no name of the job: set NVCOLL_JOB" in refused(rank=0, world_size=2)
    assert "torchrun gives no name of the job: set NVCOLL_JOB" in refused({"RANK": "0", "WORLD_SIZE": "2"})
    assert settings(environ={"RANK": "0", "WORLD_SIZE": "1"}).world_size == 1


# the name and the token


@given(st.sampled_from([row for row in LAUNCHERS if row.job]), places, st.data())
def test_the_name_of_a_job_is_that_of_its_ranks_and_of_no_other_job(row, place, data):
    mine = variables_of(row, *place)
    assert settings(environ=mine).job == settings(environ=mine | {row.rank[0]: "0"}).job
    changed = data.draw(st.sampled_from(row.job))
    assert settings(environ=mine).job != settings(environ=mine | {changed: "other"}).job


def test_under_torchrun_the_name_changes_with_run_port_and_restart():
    assert NAMED["torchrun"].job == (
        *("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"),
    )


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="processes are looked for where Linux lists them")
def test_a_launcher_without_variables_for_it_names_a_job_by_its_process():
    with open(f"/proc/{os.getppid()}/comm") as file:
        parent = file.read().rstrip("\n")
    row = dataclasses.replace(NAMED["MPICH or Intel MPI"], parent=parent)
    name = name_of_job(row, {})
    assert re.fullmatch(rf"{row.name}:{os.getppid()}-\d+", name) and name == name_of_job(row, {})
    assert name_of_job(dataclasses.replace(row, parent="nobody is called so"), {}) is None


def test_what_nvcoll_sets_is_what_it_reads():
    name, token = fresh("run")
    found = settings(environ=environment_of(3, 4, name, token))
    assert (found.rank, found.world_size, found.job, found.token) == (3, 4, name, token)
    assert len(token) == TOKEN_BYTES == 32 and fresh("run")[0] != name and fresh("run")[1] != token


def test_the_token_is_shown_nowhere():
    name, token = fresh("run")
    environ = environment_of(3, 4, name, token)
    assert token.hex() not in repr(settings(environ=environ)) and repr(token) not in repr(settings(environ=environ))
    for wrong in (token.hex()[1:], "g" * 64, token.hex() + "00"):
        message = refused(environ | {TOKEN: wrong})
        assert message.startswith("NVCOLL_TOKEN is no token: set it to 64 hexadecimal digits") and wrong not in message


def test_the_token_belongs_to_the_name_of_nvcolls_variable():
    environ = environment_of(0, 2, *fresh("run"))
    assert settings(job="another", environ=environ).token is None
    assert settings(environ={name: value for name, value in environ.items() if name != TOKEN}).token is None


# launchers in launchers


def test_a_launcher_in_a_step_of_one_task_counts_and_the_step_does_not():
    step = variables_of(NAMED["Slurm"], 0, 1)
    for row in NOT_PODS:
        found = settings(environ=step | variables_of(row, 2, 4))
        assert (found.rank, found.world_size, found.launcher) == (2, 4, row.name)
        assert "Slurm" not in found.job or row.name == "Slurm"


def test_a_batch_script_is_no_rank():
    batch = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "7", "SLURM_NNODES": "2"}
    assert settings(environ=batch).world_size == 1
    assert settings(environ=batch | variables_of(NAMED["Open MPI"], 2, 4)).rank == 2


def test_an_indexed_job_is_a_job_of_pods_only_where_no_launcher_runs_in_the_pod():
    pod = {"JOB_COMPLETION_INDEX": "1"}
    assert settings(environ=pod | {"WORLD_SIZE": "2", "NVCOLL_JOB": "a"}).launcher == "Kubernetes"
    assert settings(environ=pod | {"NVCOLL_WORLD_SIZE": "2", "NVCOLL_JOB": "a"}).launcher == "Kubernetes"
    for row in NOT_PODS:
        found = settings(environ=pod | variables_of(row, 2, 4))
        assert (found.rank, found.world_size, found.launcher) == (2, 4, row.name)


# the documentation


def test_the_table_of_the_page_is_that_of_the_launchers():
    def cell(names):
        return ", ".join(f"`{name}`" for name in names) or "-"

    for row in LAUNCHERS:
        name = f"[{row.name}]({row.source})" if row.source.startswith("https:") else row.name
        job = cell(row.job) if row.job or row.parent is None else f"the process `{row.parent}`"
        if row.job and row.parent:
            job += f", else the process `{row.parent}`"
        cells = (name, cell(row.rank), cell(row.world_size), cell((*row.local_size, *row.hosts)), job)
        assert f"| {' | '.join(cells)} |" in PAGE, f"| {' | '.join(cells)} |"
    assert f"`{TOKEN}`" in PAGE
