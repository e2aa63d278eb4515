//! `nvidia-smi topo -m`: what it says comes back, what is cut off is refused, and nothing makes it panic.

use nvcoll_fabric::hardware::{gpus, DeviceKind};
use nvcoll_fabric::preset::{preset, presets};
use nvcoll_fabric::{Error, Fabric};
use proptest::prelude::*;

fn read(text: &str, gpu: &str) -> Result<Fabric, Error> {
    Fabric::from_text(text, Some(gpu), "text")
}

/// Prints a fabric as nvidia-smi would.
fn printed(fabric: &Fabric) -> String {
    let words = fabric.matrix().unwrap();
    let names: Vec<String> = (0..words.len()).map(|gpu| format!("GPU{gpu}")).collect();
    let rows = names.iter().zip(&words).map(|(name, row)| format!("{name}\t{}", row.join("\t")));
    format!("\t\u{1b}[4m{}\u{1b}[0m\n{}\n", names.join("\t"), rows.collect::<Vec<_>>().join("\n"))
}

#[test]
fn the_matrix_of_a_preset_comes_back() {
    let names = [
        "dgx1-v100",
        "v100-4-mesh",
        "hgx-a100",
        "hgx-h100",
        "rtx3090-2-bridge",
        "pcie3-8-p2p",
        "hgx-a100-4",
        "gh200-4",
    ];
    for name in names {
        let fabric = preset(name).unwrap();
        let read = Fabric::from_text(&printed(&fabric), Some(&fabric.gpu.name), name).unwrap();
        assert_eq!(read.matrix().unwrap(), fabric.matrix().unwrap(), "{name}");
        let nvls = |fabric: &Fabric| (fabric.abilities.multicast, fabric.abilities.switch_reduction);
        assert_eq!(nvls(&read), nvls(&fabric), "{name}");
        let nvlink = |fabric: &Fabric| fabric.alone().unwrap();
        if fabric.of_kind(DeviceKind::Nvswitch).count() > 0 {
            assert_eq!(nvlink(&read), nvlink(&fabric), "{name}");
        }
    }
}

/// Two sockets; on each two GPUs with a bridge and a NIC behind the switch of the first. Made for this test.
const BRIDGES: &str = "\
        GPU0    GPU1    GPU2    GPU3    NIC0    mlx5_1  CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV4     SYS     SYS     PIX     SYS     0-15    0               N/A
GPU1    NV4      X      SYS     SYS     NODE    SYS     0-15    0               N/A
GPU2    SYS     SYS      X      NV4     SYS     PXB     16-31   1               N/A
GPU3    SYS     SYS     NV4      X      SYS     NODE    16-31   1               N/A
NIC0    PIX     NODE    SYS     SYS      X      SYS
mlx5_1  SYS     SYS     PXB     NODE    SYS      X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
";

#[test]
fn sockets_switches_and_cards_are_what_the_words_tie_together() {
    let fabric = read(BRIDGES, "a6000").unwrap();
    assert_eq!(fabric.world_size(), 4);
    assert_eq!(fabric.of_kind(DeviceKind::Nic).count(), 2);
    assert_eq!(fabric.of_kind(DeviceKind::Socket).count(), 2);
    let words = fabric.matrix().unwrap();
    assert_eq!(words[0], ["X", "NV4", "SYS", "SYS"]);
}

#[test]
fn an_excerpt_is_read_if_one_way_of_every_pair_is_there() {
    let without = |row: &str| BRIDGES.lines().filter(|line| !line.starts_with(row)).collect::<Vec<_>>().join("\n");
    assert!(read(&without("GPU3"), "a6000").is_ok());
    let cut: Vec<&str> = BRIDGES.lines().take(3).collect();
    let error = read(&cut.join("\n"), "a6000").unwrap_err().to_string();
    assert!(error.contains("GPU2 and GPU3") && error.contains("cut off"), "{error}");
}

#[test]
fn what_is_no_matrix_is_refused_with_the_reason() {
    for (text, reason) in [
        ("", "no format"),
        ("\tGPU0\tGPU1\nGPU0\tX\tNV99\nGPU1\tNV99\tX", "99 NVLinks"),
        ("\tGPU0\tGPU1\nGPU0\tX\tFOO\n", "line 2: GPU0 to GPU1 is `FOO`"),
        ("\tGPU0\tGPU1\nGPU0\tX\tNV1\nGPU1\tNV2\tX", "the other way"),
        ("\tGPU0\tGPU1\nGPU0\tNV1\tX\n", "should be X"),
    ] {
        let error = read(text, "v100-sxm").unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn cells_and_names_that_lost_the_space_between_them_are_split() {
    let whole = read(BRIDGES, "a6000").unwrap();
    for (found, glued) in [
        ("NIC0    mlx5_1  CPU", "NIC0mlx5_1CPU"),
        ("GPU2    GPU3    NIC0", "GPU2GPU3NIC0"),
        ("NV4     SYS     SYS     PIX     SYS     0-15    0 ", "NV4SYSSYSPIXSYS0-15    0 "),
        ("PXB     16-31   1 ", "PXB16-31   1 "),
        ("SYS     SYS     PXB     NODE    SYS      X", "SYSSYSPXBNODESYSX"),
        ("GPU0    GPU1    GPU2", "[4mGPU0    GPU1    GPU2"),
        ("GPU0    GPU1    GPU2", "\u{1b}[4mGPU0    GPU1    GPU2"),
        ("GPU NUMA ID\n", "GPU NUMA ID[0m\n"),
    ] {
        assert!(BRIDGES.contains(found), "{found}");
        let text = BRIDGES.replace(found, glued);
        let read = read(&text, "a6000").unwrap_or_else(|error| panic!("{glued}: {error}"));
        assert_eq!((&read.devices, &read.links), (&whole.devices, &whole.links), "{glued}");
    }
}

#[test]
fn a_blank_affinity_leaves_the_column_after_it_where_it_is() {
    let text = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n\
                GPU0\t X \tNV4\t44-51\t0\t\tN/A\nGPU1\tNV4\t X \t\t1\t\tN/A\n";
    assert_eq!(read(text, "a6000").unwrap().of_kind(DeviceKind::Socket).count(), 2);
}

#[test]
fn a_switch_with_fewer_links_than_the_gpu_has_is_that_of_another_gpu() {
    let text = printed(&preset("hgx-a100").unwrap());
    assert!(read(&text, "a100-sxm").is_ok());
    let error = read(&text, "h100-sxm").unwrap_err().to_string();
    assert!(error.contains("every GPU has 12 NVLinks to the switch, a H100 SXM has 18"), "{error}");
}

#[test]
fn a_matrix_without_nvlinks_is_refused_where_gpus_cannot_be_without() {
    let text = "\tGPU0\tGPU1\nGPU0\tX\tPHB\nGPU1\tPHB\tX\n";
    for gpu in ["h100-sxm", "a100-sxm", "v100-sxm", "mi300x"] {
        let error = read(text, gpu).unwrap_err().to_string();
        assert!(error.contains("it has no NVLink") && error.contains("name a board"), "{error}");
        assert!(read("\tGPU0\tNIC0\nGPU0\tX\tPHB\nNIC0\tPHB\tX\n", gpu).is_ok(), "{gpu}: one GPU is linked to nobody");
    }
    for gpu in ["h100-pcie", "a100-pcie", "l40s", "rtx3090"] {
        assert!(read(text, gpu).is_ok(), "{gpu}: a bridge may be missing");
    }
}

/// Files of real machines, if somebody has some: `NVCOLL_TOPOLOGIES=DIR cargo test -p nvcoll-fabric --test nvidia_smi`.
#[test]
fn every_file_of_a_folder_is_read_or_refused() {
    let Ok(folder) = std::env::var("NVCOLL_TOPOLOGIES") else { return };
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "txt") {
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let all = gpus::all().iter().map(|gpu| (gpu, Fabric::from_text(&text, Some(&gpu.name), &name)));
            let (gpu, read) = all.max_by_key(|(gpu, read)| (read.is_ok(), gpu.nvlinks)).unwrap();
            match read {
                Ok(fabric) => {
                    println!("{name}: {} {}, {} devices", fabric.world_size(), gpu.name, fabric.devices.len())
                }
                Err(error) => println!("{error}"),
            }
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_a_fabric_or_an_error(text in "\\PC{0,300}") {
        let _ = read(&text, "h100-sxm");
    }

    #[test]
    fn any_matrix_with_a_cell_changed_is_a_fabric_or_an_error(which in 0..presets().len(), at in 0usize..4000, by in "[ A-Z0-9\t\n]{0,6}") {
        let fabric = &presets()[which];
        prop_assume!(fabric.world_size() <= 16);
        let mut text = printed(fabric);
        let at = at % text.len();
        if text.is_char_boundary(at) {
            text.insert_str(at, &by);
        }
        if let Ok(read) = Fabric::from_text(&text, Some(&fabric.gpu.name), "text") {
            let _ = read.alone();
        }
    }
}
