//! The machine as NCCL's settings leave it: without NVLS, or with GPUs that do not reach each other's memory.
//!
//! ```text
//! NCCL_NVLS_ENABLE=0            the switch neither reduces nor multicasts
//! NCCL_P2P_LEVEL, _DISABLE      NVLink is beyond the level: no NVLink, traffic is host-staged
//!                               every path over PCIe is beyond it: traffic over PCIe is host-staged
//! NCCL_NET_GDR_LEVEL            every path from a GPU to its nearest card is beyond it: no GPUDirect RDMA
//! ```
//!
//! A level between the paths over PCIe of one machine is refused: the closed forms have one rate for all of them. Without a
//! level, GPUs with peer access use it on every path, as the measured machines do.

use std::borrow::Cow;

use super::machine::{Interconnect, MachineSummary};
use crate::error::{Error, Result};
use crate::hardware::media::LinkFamily;
use crate::hardware::{Abilities, DeviceKind, Fabric};
use crate::nccl::{host_class, NcclSettings, PathClass};
use crate::topology::route::Router;

/// Returns the machine that NCCL uses under its settings.
///
/// # Errors
/// [`Error::Setting`] for a level that leaves some paths and takes others; the errors of [`MachineSummary::of`].
pub(super) fn set_fabric<'a>(fabric: &'a Fabric, settings: &NcclSettings) -> Result<Cow<'a, Fabric>> {
    let mut set = Cow::Borrowed(fabric);
    if settings.nvls == Some(false) {
        let abilities = Abilities { multicast: false, switch_reduction: false, ..fabric.abilities };
        set = Cow::Owned(Fabric { abilities, ..fabric.clone() });
    }
    if settings.gdr_level.is_some_and(|level| fabric.abilities.gpu_direct && is_cut_from_cards(fabric, level)) {
        set.to_mut().abilities.gpu_direct = false;
    }
    let Some(level) = settings.p2p_level else { return Ok(set) };
    let part = set.excerpt();
    let part = part.as_ref().unwrap_or(&set);
    let machine = MachineSummary::of(part)?;
    let (over_nvlink, over_host) = classes(part, &machine)?;
    let is_beyond = |class: &PathClass| *class > level;
    let refuse = |message: &str| Err(Error::Setting { variable: "NCCL_P2P_LEVEL", message: message.to_owned() });
    let loses_nvlink = over_nvlink.iter().any(is_beyond);
    if loses_nvlink && !over_nvlink.iter().all(is_beyond) {
        return refuse("it leaves some GPUs NVLink and takes it from others, and no closed form is known for this");
    }
    if loses_nvlink && machine.folds {
        return refuse(
            "NCCL keeps NVLS without peer access, and no closed form is known for this: pass NCCL_NVLS_ENABLE=0 too",
        );
    }
    let loses_host = fabric.abilities.peer_access && over_host.iter().any(is_beyond);
    if loses_host && !over_host.iter().all(is_beyond) {
        return refuse("it leaves some pairs of GPUs peer access over PCIe and takes it from others, and no closed form is known for this");
    }
    if loses_nvlink || loses_host {
        let mut changed = set.into_owned();
        changed.abilities.peer_access = false;
        if loses_nvlink {
            changed.links.retain(|link| !link.medium.family.joins_gpus());
        }
        set = Cow::Owned(changed);
    }
    Ok(set)
}

/// Says whether the path from a GPU of the first node to the nearest network card is beyond a level. Of GPUs at unlike distances
/// the furthest counts: a ring waits for it.
fn is_cut_from_cards(fabric: &Fabric, level: PathClass) -> bool {
    let part = fabric.excerpt();
    let seen = part.as_ref().unwrap_or(fabric);
    let (gpus, mut router) = (seen.gpus(), Router::of(seen));
    let home = gpus.first().and_then(|&gpu| seen.devices[gpu].node);
    let is_here = |&at: &usize| seen.devices[at].node == home;
    let cards: Vec<usize> = seen.of_kind(DeviceKind::Nic).filter(is_here).collect();
    gpus.iter().filter(|gpu| is_here(gpu)).any(|&gpu| {
        let is_passed = |kind| matches!(kind, DeviceKind::PcieSwitch | DeviceKind::Socket);
        let is_taken = |family| matches!(family, LinkFamily::Pcie | LinkFamily::Socket | LinkFamily::C2c);
        let paths = cards.iter().filter_map(|&card| router.shortest(seen, gpu, card, is_passed, is_taken));
        paths.map(|links| host_class(seen, &links)).min().is_some_and(|nearest| nearest > level)
    })
}

/// Returns the classes of the paths between GPUs of the first node, over NVLink and over PCIe.
fn classes(fabric: &Fabric, machine: &MachineSummary) -> Result<(Vec<PathClass>, Vec<PathClass>)> {
    let gpus = fabric.gpus();
    let local = gpus.iter().take_while(|&&gpu| fabric.devices[gpu].node == fabric.devices[gpus[0]].node).count() as u32;
    let words = fabric.matrix_among(local, &nvcoll_core::interrupt::Interrupt::never())?;
    let is_mesh = machine.interconnect == Interconnect::Nvlink;
    let (mut over_nvlink, mut over_host) = (Vec::new(), Vec::new());
    for word in words.iter().flatten().filter(|word| *word != "X") {
        match word.as_str() {
            // NCCL passes another GPU there.
            "PIX" | "PXB" | "PHB" | "SYS" if is_mesh => over_nvlink.push(PathClass::Nvb),
            "PIX" => over_host.push(PathClass::Pix),
            "PXB" => over_host.push(PathClass::Pxb),
            "PHB" => over_host.push(PathClass::Phb),
            "SYS" => over_host.push(PathClass::Sys),
            _ => over_nvlink.push(PathClass::Nvl),
        }
    }
    Ok((over_nvlink, over_host))
}
