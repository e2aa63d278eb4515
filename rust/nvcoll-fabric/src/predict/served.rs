//! The kernels by which model servers run an all_reduce: over peer memory, launched from a CUDA graph.
//!
//! ```text
//! start     scale of the generation x (start_us + per_peer_us (n - 2))                       kernel, flags
//! bytes     load S / least of (part of line rate, what the blocks keep in flight / scale), less what the barrier hides
//! copies    operands S / rate of memory                                                     in and out of a symmetric buffer
//!
//! load      one-shot n - 1      two-shot 2 (n - 1) / n      multicast in the switch 1 + 1 / n
//! ```
//!
//! As schedules these are `one_shot` and `two_shot`, which [`nvcoll_core`] proves. `served_rules` has the rule by which a
//! server chooses, `server_kernels.toml` the constants, which `tools/predict/servers.py` fits to tables of NVIDIA's
//! aiconfigurator. A GPU generation without rows has the mean of the others.
//!
//! **What is not modelled.** AMD's kernels; ranks of several trays of a rack; the fusion of an all_reduce with what follows; calls
//! outside CUDA graphs, which copy their input first.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::breakdown::us;
use super::constants::{Age, ByAge};
use super::machine::{Interconnect, MachineSummary};
use super::served_rules::{limits, PeerLink, Server, SizeLimit};
use crate::hardware::gpus::Gpu;
use crate::hardware::{Fabric, Link};
use crate::tables;

/// The GPUs of a tray of a rack. Cited: NVIDIA GB200 NVL72 has two processors of two GPUs in each.
const TRAY: u32 = 4;

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Form {
    OneShot,
    TwoShot,
    Multicast,
}

/// A row of `server_kernels.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerKernel {
    form: Form,
    start_us: f64,
    per_peer_us: f64,
    /// The microseconds of bytes that the barrier in the middle hides.
    #[serde(default)]
    hidden_us: f64,
    /// The part of NVLink's line rate.
    part: f64,
    /// The GB/s that the blocks keep in flight: to each peer of a one-shot kernel, to all peers of others.
    flight_gbps: Option<f64>,
    /// The operands of copies to and from a symmetric buffer, in bytes that pass memory per byte of the call.
    #[serde(default)]
    copied: f64,
    /// The bytes of which a call must be a multiple.
    multiple: u64,
    /// The factor of the 90 % interval over NVLink.
    pub(super) factor: f64,
    /// The links and generations on which it was measured, with the number of models of GPUs.
    pub(super) measured: BTreeMap<String, u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerKernels {
    /// Start-up times of a generation over those of Hopper.
    scale: ByAge,
    /// The same over PCIe, and where no GPU of the generation was measured.
    pcie_scale: f64,
    other_scale: f64,
    /// The part of PCIe's line rate.
    pcie_part: f64,
    /// The factor of the 90 % interval over PCIe.
    pub(super) pcie_factor: f64,
    kernel: BTreeMap<String, ServerKernel>,
}

pub(super) static KERNELS: LazyLock<ServerKernels> = LazyLock::new(|| {
    let text = include_str!("server_kernels.toml");
    tables::read(text, "server_kernels.toml").expect("a test reads the table that is shipped")
});

/// The facts about a machine on which kernels of servers depend.
#[derive(Debug, Clone)]
pub(super) struct ServedMachine {
    machine: MachineSummary,
    gpu: &'static Gpu,
    pub(super) age: Age,
    /// The link between peers, or why servers run NCCL.
    pub(super) link: std::result::Result<PeerLink, &'static str>,
    pub(super) refusal: Option<&'static str>,
}

impl ServedMachine {
    pub(super) fn of(fabric: &Fabric, machine: MachineSummary) -> Self {
        let gpus = fabric.gpus();
        let is_peer = |link: &&Link| link.medium.family.joins_gpus() && gpus.contains(&link.to);
        let peers = |gpu: usize| fabric.links.iter().filter(|link| link.from == gpu).filter(is_peer).count() as u32;
        let is_joined = machine.has_switch || gpus.iter().all(|&gpu| peers(gpu) + 1 == machine.ranks);
        let link = match machine.interconnect {
            _ if machine.nodes > 1 => Err("its ranks are on several nodes"),
            Interconnect::Nvlink if is_joined => Ok(PeerLink::Nvlink),
            Interconnect::Nvlink => Err("NVLink does not join every two GPUs"),
            Interconnect::Peer => Ok(PeerLink::Pcie),
            Interconnect::Staged => Err("its GPUs have no peer access"),
        };
        let refusal = match machine.is_amd {
            true => Some("nvcoll does not know the kernels of servers for AMD GPUs"),
            false => (machine.is_rack && machine.ranks > TRAY)
                .then_some("nvcoll does not know the kernels of servers across trays: pass the 4 GPUs of one"),
        };
        Self { age: Age::of(machine.generation), gpu: fabric.gpu, machine, link, refusal }
    }

    /// Finds the kernel that a server runs; none for NCCL.
    pub(super) fn kernel(
        &self,
        server: Server,
        link: PeerLink,
        nbytes: u64,
    ) -> Option<(&'static str, &'static ServerKernel)> {
        let kernel_of = |row: &SizeLimit| KERNELS.kernel.get(&row.kernel);
        let fits = |kernel: &ServerKernel| nbytes.is_multiple_of(kernel.multiple);
        let rows = limits(server, link, self.gpu.sm.unwrap_or(0), self.machine.ranks);
        let row = rows.iter().find(|row| nbytes <= row.last && kernel_of(row).is_none_or(fits))?;
        let kernel = kernel_of(row)?;
        (kernel.copied == 0.0 || self.machine.folds).then_some((row.kernel.as_str(), kernel))
    }

    /// Returns the microseconds of start, copies and bytes.
    pub(super) fn spent(&self, kernel: &ServerKernel, link: PeerLink, nbytes: f64) -> [f64; 3] {
        let (table, ranks) = (&*KERNELS, f64::from(self.machine.ranks));
        let peers = ranks - 1.0;
        let (scale, part) = match link {
            PeerLink::Pcie => (table.pcie_scale, table.pcie_part),
            PeerLink::Nvlink => (table.scale.get(&self.age).copied().unwrap_or(table.other_scale), kernel.part),
        };
        let (load, streams) = match kernel.form {
            Form::OneShot => (peers, peers),
            Form::TwoShot => (2.0 * peers / ranks, 1.0),
            Form::Multicast => (1.0 + 1.0 / ranks, 1.0),
        };
        let rate =
            kernel.flight_gbps.map_or(f64::INFINITY, |gbps| streams * gbps / scale).min(part * self.machine.line_gbps);
        let start = scale * (kernel.start_us + kernel.per_peer_us * (peers - 1.0));
        let bytes = (us(load * nbytes, rate) - scale * kernel.hidden_us).max(0.0);
        [start, us(kernel.copied * nbytes, self.gpu.memory_gbps), bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::super::served_rules::{limits, PeerLink, Server};
    use super::KERNELS;

    #[test]
    fn every_kernel_of_a_rule_has_constants_and_sizes_rise() {
        for server in Server::ALL {
            assert!(!server.row().title.is_empty());
            for (sm, ranks) in [80, 90, 100, 103, 120].into_iter().flat_map(|sm| [2, 4, 6, 8].map(|ranks| (sm, ranks)))
            {
                for link in [PeerLink::Nvlink, PeerLink::Pcie] {
                    let rows = limits(server, link, sm, ranks);
                    assert!(rows.is_sorted_by_key(|row| row.last));
                    assert!(rows.iter().all(|row| row.kernel == "NCCL" || KERNELS.kernel.contains_key(&row.kernel)));
                }
            }
        }
    }
}
