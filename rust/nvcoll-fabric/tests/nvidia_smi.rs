//! `nvidia-smi topo -m`: what it says comes back, what is cut off is refused, and nothing makes it panic.

use nvcoll_fabric::hardware::DeviceKind;
use nvcoll_fabric::machines::preset;
use nvcoll_fabric::preset::presets;
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
        ("", "it is empty"),
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

/// The output of nvidia-smi for GPUs that are all joined alike, each on the given NUMA node. Made for this test.
fn on_nodes(word: &str, nodes: &[&str]) -> String {
    let names: Vec<String> = (0..nodes.len()).map(|gpu| format!("GPU{gpu}")).collect();
    let row = |(at, node): (usize, &&str)| {
        let cells: Vec<&str> = (0..nodes.len()).map(|to| if to == at { " X " } else { word }).collect();
        format!("GPU{at}\t{}\t0-7\t{node}\t\tN/A\n", cells.join("\t"))
    };
    let rows: String = nodes.iter().enumerate().map(row).collect();
    format!("\t{}\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n{rows}", names.join("\t"))
}

/// The socket of each GPU.
fn sockets_of(fabric: &Fabric) -> Vec<String> {
    let is_host = |at: usize| matches!(fabric.devices[at].kind, DeviceKind::Socket | DeviceKind::PcieSwitch);
    let up = |from: usize| fabric.links.iter().find(|link| link.from == from && is_host(link.to)).unwrap().to;
    let socket = |gpu: usize| fabric.devices[up(gpu)].name.clone();
    fabric.gpus().into_iter().map(socket).collect()
}

#[test]
fn numa_nodes_of_one_socket_are_one_socket() {
    for (gpu, nodes, sockets) in [
        ("a100-sxm", &["3", "3", "1", "1", "7", "7", "5", "5"][..], &[0, 0, 0, 0, 1, 1, 1, 1][..]),
        ("h100-sxm", &["0", "0", "0", "1", "2", "2", "2", "3"], &[0, 0, 0, 0, 1, 1, 1, 1]),
        ("h100-sxm", &["0", "0", "1", "1"], &[0, 0, 1, 1]),
        ("h100-sxm", &["0", "0", "0", "0"], &[0, 0, 0, 0]),
        ("h100-sxm", &["1", "1", "1", "1"], &[0, 0, 0, 0]),
        ("h100-sxm", &["N/A", "N/A", "N/A", "N/A"], &[0, 0, 0, 0]),
        ("gb200", &["0,3-9,11-17", "0,3-9,11-17", "1,19-25,27-33", ""], &[0, 0, 1, 1]),
        ("gh200", &["0", "1", "2", "3"], &[0, 1, 2, 3]),
    ] {
        let links = if gpu == "a100-sxm" { "NV12" } else { "NV18" };
        let fabric = read(&on_nodes(if gpu == "gh200" { "NV6" } else { links }, nodes), gpu).unwrap();
        let expected: Vec<String> = sockets.iter().map(|socket| format!("socket{socket}")).collect();
        assert_eq!(sockets_of(&fabric), expected, "{gpu} {nodes:?}");
        let is_told = fabric.sources.iter().any(|source| source.contains("(NPS)"));
        assert_eq!(is_told, nodes.contains(&"3") && gpu != "gh200", "{nodes:?}");
    }
    let tray = read(&on_nodes("NV18", &["0", "0", "1", "1"]), "gb200").unwrap();
    assert_eq!(tray.alone().unwrap(), preset("gb200-4").unwrap().alone().unwrap());
}

#[test]
fn sys_tells_sockets_where_no_affinity_does() {
    let mesh = preset("dgx1-v100").unwrap();
    let fabric = read(&printed(&mesh), "v100-sxm").unwrap();
    let halves = [[0; 4], [1; 4]].concat().iter().map(|socket| format!("socket{socket}")).collect::<Vec<_>>();
    assert_eq!(sockets_of(&fabric), halves);
    let apart = on_nodes("SYS", &["", "", "", ""]);
    let fabric = read(&apart, "l40s").unwrap();
    assert_eq!(sockets_of(&fabric), ["socket0", "socket0", "socket1", "socket1"], "each has half");
    let with_processors = "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\nGPU0\t X \tNV12\tNV12\tNV12\t0-31\n\
        GPU1\tNV12\t X \tNV12\tNV12\t0-31\nGPU2\tNV12\tNV12\t X \tNV12\t32-63\nGPU3\tNV12\tNV12\tNV12\t X \t32-63\n";
    let fabric = read(with_processors, "a100-sxm").unwrap();
    assert_eq!(sockets_of(&fabric), ["socket0", "socket0", "socket1", "socket1"]);
}

#[test]
fn a_gpu_without_nvlinks_beside_others_with_them_leaves_nobody_nvls() {
    let whole = on_nodes("NV18", &["0", "0", "1", "1"]);
    assert!(read(&whole, "b200").unwrap().abilities.switch_reduction);
    let cells = |line: &str, at: usize| -> String {
        let cell = |(column, cell): (usize, &str)| match (at, column) {
            (2, 1..=4) if column != 3 => "NODE".to_owned(),
            (0 | 1 | 3, 3) => "NODE".to_owned(),
            _ => cell.to_owned(),
        };
        line.split('\t').enumerate().map(cell).collect::<Vec<_>>().join("\t")
    };
    let (header, rows) = whole.split_once('\n').unwrap();
    let down: Vec<String> = rows.lines().enumerate().map(|(at, line)| cells(line, at)).collect();
    let fabric = read(&format!("{header}\n{}\n", down.join("\n")), "b200").unwrap();
    assert_eq!(fabric.matrix().unwrap()[0], ["X", "NV18", "NODE", "NV18"]);
    assert!(!fabric.abilities.switch_reduction && !fabric.abilities.multicast);
}

#[test]
fn the_model_is_that_of_nvidia_smi_in_the_same_text() {
    let matrix = printed(&preset("hgx-h100").unwrap());
    let list: String = (0..8).map(|gpu| format!("GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-{gpu})\n")).collect();
    let table = "| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15    CUDA Version: 12.4 |\n\
                 | GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n\
                 |   0  NVIDIA H100 80GB HBM3          On  |   00000000:19:00.0 Off |                    0 |\n";
    let without = |text: &str| Fabric::from_text(text, None, "text");
    for beside in [&list, table] {
        for text in [format!("{beside}\n{matrix}"), format!("{matrix}\n{beside}")] {
            let fabric = without(&text).unwrap();
            assert_eq!((fabric.gpu.name.as_str(), fabric.world_size()), ("h100-sxm", 8));
            assert_eq!(read(&text, "h100-sxm").unwrap(), fabric);
            let error = read(&text, "h200").unwrap_err().to_string();
            assert!(error.contains("gpu is h200, but it is about GPUs h100-sxm: leave `gpu` out"), "{error}");
        }
    }
    let error = without(&matrix).unwrap_err().to_string();
    assert!(error.contains("pass gpu, as --gpu h100-sxm; it fits h100-sxm, h200"), "{error}");
    let unknown = format!("{}\n{matrix}", list.replace("H100 80GB HBM3", "Z900"));
    let error = without(&unknown).unwrap_err().to_string();
    assert!(error.contains("it is about NVIDIA Z900, which is no known GPU"), "{error}");
    let named = read(&unknown, "b200").unwrap();
    assert!(named.sources.iter().any(|source| source == "NVIDIA Z900 is taken for B200 SXM, as given"));
    assert_eq!(without(&printed(&preset("hgx-a100").unwrap())).unwrap().gpu.name, "a100-sxm", "only it fits");
    assert_eq!(without(&printed(&preset("dgx2").unwrap())).unwrap().gpu.name, "v100-sxm", "only it fits");
}

#[test]
fn windows_writes_the_same_machine() {
    let windows = read(&format!("\u{feff}{}", BRIDGES.replace('\n', "\r\n")), "a6000").unwrap();
    assert_eq!(windows, read(BRIDGES, "a6000").unwrap());
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
