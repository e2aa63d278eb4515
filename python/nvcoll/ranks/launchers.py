"""The launchers that nvcoll recognises, a row for each, and the names that they give to jobs.

A launcher starts processes and tells each its rank in environment variables, each launcher in its own ones.
`nvcoll.ranks.job` reads them by this table; the table of ``docs/run/launching.md`` is this one too.

Ranks find each other by the name of their job. So the name is the same on all ranks of a host, and differs from that of
every other job that the user runs there at that time. Most launchers have variables that give such a name.
MPICH has none: there the name is that of the process that has started the ranks of this host.

Sources: the documentation of each launcher, as its row says. Checked by running: Open MPI 5, MPICH 5, Intel MPI 2021.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Launcher:
    """A launcher, and the environment variables in which it tells a process its place.

    Of several variables for one thing the first that is set counts; the name of a job is made of all.

    Attributes:
        name: how messages call it.
        rank: the variables of the rank.
        world_size: the variables of the number of ranks.
        started: it has started this process if one of these is set.
        local_size: the variables of the number of ranks on this host.
        hosts: the variables of the number of hosts.
        job: the variables that together name the job.
        parent: the name of the process that starts all ranks of a host; it names the job if no variable does.
        has_mpi: MPI knows it, so ranks on several hosts can meet by MPI.
        numbers_pods: it numbers pods, and other launchers run in them.
        source: where this is documented.
    """

    name: str
    rank: tuple[str, ...]
    world_size: tuple[str, ...]
    started: tuple[str, ...]
    source: str
    local_size: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    job: tuple[str, ...] = ()
    parent: str | None = None
    has_mpi: bool = False
    numbers_pods: bool = False


OURS = Launcher(
    name="nvcoll",
    rank=("NVCOLL_RANK",),
    world_size=("NVCOLL_WORLD_SIZE",),
    started=("NVCOLL_RANK", "NVCOLL_WORLD_SIZE"),
    job=("NVCOLL_JOB",),
    source="this project",
)
"""What ``nvcoll run -n`` and ``nvcoll.spawn`` set, and everybody who starts ranks by hand."""

OTHERS = (
    Launcher(
        name="torchrun",
        rank=("RANK",),
        world_size=("WORLD_SIZE",),
        started=("RANK", "WORLD_SIZE"),
        local_size=("LOCAL_WORLD_SIZE",),
        hosts=("GROUP_WORLD_SIZE",),
        # Several runs have one run id, `none`, but not one port; a restart has the id and may have the port of before.
        job=("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"),
        source="https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables",
    ),
    Launcher(
        name="Open MPI",
        rank=("OMPI_COMM_WORLD_RANK",),
        world_size=("OMPI_COMM_WORLD_SIZE",),
        started=("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        local_size=("OMPI_COMM_WORLD_LOCAL_SIZE",),
        job=("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
        has_mpi=True,
        source="https://docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html",
    ),
    Launcher(
        name="MPICH or Intel MPI",
        rank=("PMI_RANK", "PMI_ID"),
        world_size=("PMI_SIZE",),
        started=("PMI_RANK", "PMI_ID", "PMI_SIZE"),
        local_size=("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"),
        job=("I_MPI_HYDRA_UUID", "PMI_JOBID"),
        parent="hydra_pmi_proxy",
        has_mpi=True,
        source="https://github.com/pmodels/mpich/blob/main/src/pm/hydra/proxy/pmip_cb.c",
    ),
    Launcher(
        name="Slurm",
        rank=("SLURM_PROCID",),
        world_size=("SLURM_STEP_NUM_TASKS",),
        # A batch script has a SLURM_PROCID and SLURM_NTASKS too, for the steps that it may start.
        started=("SLURM_STEP_NUM_TASKS",),
        hosts=("SLURM_STEP_NUM_NODES",),
        job=("SLURM_JOB_ID", "SLURM_STEP_ID"),
        has_mpi=True,
        source="https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES",
    ),
    Launcher(
        name="Kubernetes",
        rank=("JOB_COMPLETION_INDEX",),
        world_size=("WORLD_SIZE",),
        started=("JOB_COMPLETION_INDEX",),
        numbers_pods=True,
        source="https://kubernetes.io/docs/tasks/job/indexed-parallel-processing-static/",
    ),
)
"""Launchers that know nothing of nvcoll. Where several speak, the first names the job."""

LAUNCHERS = (OURS, *OTHERS)
"""Every launcher that nvcoll recognises."""


def name_of_job(launcher: Launcher, environ: Mapping[str, str]) -> str | None:
    """Returns the name that a launcher's variables give a job, or the process that started its ranks."""
    parts = [environ[name] for name in launcher.job if environ.get(name)]
    if not parts and launcher.parent is not None and (process := _ancestor(launcher.parent)):
        parts = [process]
    return ":".join([launcher.name, *parts]) if parts else None


def _ancestor(name: str) -> str | None:
    """Returns number and start time of the process of some name that has started this process, directly or not."""
    process = os.getppid()
    while process > 1:
        try:
            with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
                begin, _, rest = file.read().rpartition(")")
        except OSError:
            return None
        fields = rest.split()  # from the third on, as proc(5) counts: state, parent, ...; the 22nd is the start time
        if begin.partition("(")[2] == name:
            return f"{process}-{fields[19]}"
        process = int(fields[1])
    return None


def torch_environment(world_size: int) -> dict[str, str]:
    """Returns the variables of ``torch.distributed.init_process_group`` that are the same for all ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]  # rank 0 binds it again; a program that takes it meanwhile makes rank 0 fail
    sizes = {"WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size)}
    return sizes | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
