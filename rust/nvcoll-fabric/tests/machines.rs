//! What people type, and the machine that it is: the grammar of lists, clusters, files and changes, and names of GPUs.

use nvcoll_fabric::hardware::gpus;
use nvcoll_fabric::hardware::network::network;
use nvcoll_fabric::machines::{machines, other_names, preset};
use nvcoll_fabric::preset::rows;
use nvcoll_fabric::topology::cluster::cluster;
use nvcoll_fabric::{Error, Result};

const TOPO: &str = "GPU 0: NVIDIA L40S (UUID: GPU-0)\n\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t0-31\t0\nGPU1\tSYS\t X \t32-63\t1\n";

fn read(path: &str) -> Result<String> {
    let shipped = |text: &str| Ok(text.to_owned());
    match path {
        "a.toml" | "dir/a.toml" => shipped(include_str!("../src/presets/dgx2.toml")),
        "n.toml" => shipped("name = \"n\"\ntitle = \"mine\"\nsource = \"s\"\nmedium = \"ib-ndr\"\nnics = 8\nhost_medium = \"pcie5\"\nhost_lanes = 16\n"),
        "topo.txt" => shipped(TOPO),
        "unnamed.txt" => shipped(&TOPO[TOPO.find('\n').unwrap()..]),
        _ => Err(Error::Description { origin: path.to_owned(), message: "there is no such file".to_owned() }),
    }
}

fn names(text: &str) -> String {
    match machines(text, None, &read) {
        Ok(found) => found.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(" | "),
        Err(error) => format!("! {error}"),
    }
}

#[test]
fn what_is_typed_is_found() {
    for (typed, found) in [
        ("hgx-h100", "hgx-h100"),
        ("HGX-H100", "hgx-h100"),
        ("HGX H100", "hgx-h100"),
        ("dgx-h100", "hgx-h100"),
        ("DGX H100", "hgx-h100"),
        ("8xH100", "hgx-h100"),
        ("8x H100", "hgx-h100"),
        ("h100x8", "hgx-h100"),
        ("H100", "hgx-h100"),
        ("H100 SXM5", "hgx-h100"),
        ("3xH100", "hgx-h100[0-2]"),
        ("1xH100", "hgx-h100[0]"),
        ("A100-SXM4-80GB", "hgx-a100"),
        ("NVIDIA H100 80GB HBM3", "hgx-h100"),
        ("NVIDIA A100-SXM4-40GB", "hgx-a100 with gpu a100-sxm-40gb"),
        ("p4d.24xlarge", "hgx-a100 with gpu a100-sxm-40gb"),
        ("4xA100", "hgx-a100-4"),
        ("H200", "hgx-h200"),
        ("B200", "hgx-b200"),
        ("nvl72", "gb200-nvl72"),
        ("GB200 NVL72", "gb200-nvl72"),
        ("gb200", "gb200-nvl72"),
        ("8xgb200", "gb200-8"),
        ("MI300X", "mi300x-8"),
        ("mi300x8", "mi300x-8"),
        ("8xMI300X", "mi300x-8"),
        ("MI325X", "mi325x-8"),
        ("8xMI325X", "mi325x-8"),
        ("8xMI325Xx2+roce-400-8", "mi325x-8x2+roce-400-8"),
        ("8xMI308X", "mi308x-8"),
        ("8xMI350X", "mi350x-8"),
        ("MI100", "pcie4-2-p2p[0] with gpu mi100"),
        ("4x rtx4090", "rtx4090-4-staged"),
        ("4 x RTX 4090", "rtx4090-4-staged"),
        ("8xL40S", "l40s-8-p2p"),
        ("T4", "t4-1"),
        ("1xA10G", "pcie4-2-p2p[0] with gpu a10g"),
        ("g5.xlarge", "pcie4-2-p2p[0] with gpu a10g"),
        ("g5.48xlarge", "pcie4-8-p2p with gpu a10g"),
        ("g4dn.12xlarge", "pcie3-4-p2p with gpu t4"),
        ("rtx4090", "rtx4090-2-staged[0]"),
        ("3060", "rtx4090-2-staged[0] with gpu rtx3060"),
        ("RTX 4070 Ti", "rtx4090-2-staged[0] with gpu rtx4070ti"),
        ("4090", "rtx4090-2-staged[0]"),
        ("2x4090", "rtx4090-2-staged"),
        ("L40S", "l40s-4-p2p[0]"),
        ("a6000", "pcie4-2-p2p[0] with gpu a6000"),
        ("4xA6000", "pcie4-4-p2p with gpu a6000"),
        ("RTX 6000 Ada", "pcie4-2-p2p[0] with gpu rtx6000-ada"),
        ("8x3090", "rtx3090-8-staged"),
        ("3x3090", "rtx3090-4-staged[0-2]"),
        ("4x3090 nvlink", "rtx3090-4-bridge"),
        ("2x rtx pro 6000", "rtxpro6000-ws-2-p2p"),
        ("h100-pcie", "h100-pcie-1"),
        ("H200 NVL", "h200-nvl-2-bridge[0]"),
        ("2xH200 NVL", "h200-nvl-2-bridge"),
        ("4x H200 NVL", "h200-nvl-4-bridge"),
        ("h200-sxm", "hgx-h200"),
        ("h100-nvl-2", "h100-nvl-2-bridge"),
        ("NC96ads_A100_v4", "a100-pcie-4-bridge"),
        ("MI250X", "mi250x-8"),
        ("8x RTX 6000D", "rtx6000d-8-p2p"),
        ("2xR9700", "r9700-2-p2p"),
        ("2x 5060 Ti", "rtx5060ti-2-staged"),
        ("8x RTX 5880 Ada", "pcie4-8-p2p with gpu rtx5880-ada"),
        ("rtx4090-4-staged with lanes 8", "rtx4090-4-staged with lanes 8"),
        ("1 x RTX A5000", "pcie4-2-p2p[0] with gpu a5000"),
        ("dgx spark", "gb10-1"),
        ("p5.48xlarge", "hgx-h100"),
        ("1xL40S", "l40s-4-p2p[0]"),
        ("2xL40S", "l40s-4-p2p[0-1]"),
        ("3x rtx4090", "rtx4090-4-staged[0-2]"),
        ("1xGH200", "gh200-4[0]"),
        ("8xRTX PRO 6000", "rtxpro6000-server-8-p2p"),
        ("8xrtxpro6000", "rtxpro6000-server-8-p2p"),
        ("p4d", "hgx-a100 with gpu a100-sxm-40gb"),
        ("p3.8xlarge", "dgx1-v100[0-3] with gpu v100-sxm-16gb"),
        ("g6.xlarge", "l4-4-p2p[0]"),
        ("a2-highgpu-2g", "hgx-a100[0-1] with gpu a100-sxm-40gb"),
        ("gpu_8x_a100", "hgx-a100 with gpu a100-sxm-40gb"),
        ("gpu_8x_v100", "dgx1-v100 with gpu v100-sxm-16gb"),
        ("gd-8xh100ib-i128", "hgx-h100"),
        ("ND128isr_NDR_GB200_v6", "gb200-4"),
        ("DGX-1V", "dgx1-v100"),
        ("--gres=gpu:h100:8", "hgx-h100"),
        ("NVIDIA-H100-80GB-HBM3", "hgx-h100"),
        ("nvidia-tesla-a100", "hgx-a100 with gpu a100-sxm-40gb"),
        ("8 H100s", "hgx-h100"),
        ("8xA100-40G", "hgx-a100 with gpu a100-sxm-40gb"),
        ("2xRTX 3090 nvlink", "rtx3090-2-bridge"),
        ("hgx-h100*4+ib-ndr-8", "hgx-h100x4+ib-ndr-8"),
        ("2x8xH100+ib-ndr-8", "hgx-h100x2+ib-ndr-8"),
        ("2 nodes of DGX H100 + ib-ndr-8", "hgx-h100x2+ib-ndr-8"),
        ("16xH100+ib-ndr-8", "hgx-h100x2+ib-ndr-8"),
        ("12xH100+ib-ndr-8", "hgx-h100[0-5]x2+ib-ndr-8"),
        ("1x8xH100", "hgx-h100"),
        ("gh200-4[0]x2+slingshot-4", "gh200-4[0]x2+slingshot-4"),
        ("p4d.24xlarge[0,3]", "hgx-a100[0,3] with gpu a100-sxm-40gb"),
        ("p4d.24xlargex4+ib-ndr-8", "hgx-a100x4+ib-ndr-8 with gpu a100-sxm-40gb"),
        ("2x p4d.24xlarge+ib-ndr-8 with nvlink x2", "hgx-a100x2+ib-ndr-8 with gpu a100-sxm-40gb with nvlink x2"),
        ("p3.8xlargex2+ib-ndr-8", "dgx1-v100[0-3]x2+ib-ndr-8 with gpu v100-sxm-16gb"),
        ("Standard_ND96isr_H100_v5", "hgx-h100"),
        ("gpu_8x_h100_sxm5", "hgx-h100"),
        ("BM.GPU.H100.8", "hgx-h100"),
        ("DGX A100 640GB", "hgx-a100"),
        ("Standard_ND96asr_v4", "hgx-a100 with gpu a100-sxm-40gb"),
        ("g6e.48xlarge", "l40s-8-p2p"),
        ("hgx-h100[0-3]", "hgx-h100[0-3]"),
        ("hgx-h100[0,3]", "hgx-h100[0,3]"),
        ("dgx-h100[0,3]x2+IB-NDR-8", "hgx-h100[0,3]x2+ib-ndr-8"),
        ("8xH100x4+ib-ndr-8", "hgx-h100x4+ib-ndr-8"),
        ("hgx-h100 x4 + ib-ndr-8", "hgx-h100x4+ib-ndr-8"),
        ("hgx-h100[0,3], hgx-a100,", "hgx-h100[0,3] | hgx-a100"),
        ("a.toml,hgx-h100", "dgx2 | hgx-h100"),
        ("dir/a.toml", "dgx2"),
        ("a.tomlx3+n.toml,hgx-h100[0,3]", "dgx2x3+n | hgx-h100[0,3]"),
        ("topo.txtx2+ib-ndr-1", "topo.txtx2+ib-ndr-1"),
        ("hgx-h100 with nvlinkx2", "hgx-h100 with nvlink x2"),
        (
            "hgx-h100x4+ib-ndr-8 with NVLINK x2, nics 4, hgx-a100",
            "hgx-h100x4+ib-ndr-8 with nvlink x2 with nics 4 | hgx-a100",
        ),
        ("hgx-h100x4+ib-ndr-8 with nics 4 with network x2", "hgx-h100x4+ib-ndr-8 with nics 4 with network x2"),
        ("topo.txt with socket epyc x3", "topo.txt with socket epyc x3"),
        ("hgx-h100 with gpu H200", "hgx-h100 with gpu h200"),
    ] {
        assert_eq!(names(typed), found, "{typed}");
        for one in machines(typed, None, &read).unwrap() {
            if !typed.contains(".t") {
                assert_eq!(preset(&one.name).as_ref(), Ok(&one), "{typed}: {} parses back", one.name);
            }
        }
    }
}

#[test]
fn what_is_not_found_says_which_machines_come_nearest_and_how_they_differ() {
    for (typed, said) in [
        ("V100", &["dgx1-v100 (8 x V100, NVLink 2 hybrid cube mesh)"][..]),
        ("16xH100", &["hgx-h100x2+ib-ndr-8 (", "hgx-h100x2+roce-400-8 (", "hgx-h100x2+efa-400-8 ("]),
        ("hgx-h100x8", &["nodes have a network between them: pass one, as hgx-h100x8+ib-ndr-8"]),
        ("2x8xH100", &["pass one, as hgx-h100x2+ib-ndr-8 (8 x InfiniBand NDR)"]),
        ("2 x 8 x H100", &["pass one, as hgx-h100x2+ib-ndr-8"]),
        ("2xhgx-h100", &["pass one, as hgx-h100x2+ib-ndr-8"]),
        ("4x DGX H100", &["pass one, as hgx-h100x4+ib-ndr-8"]),
        ("2 nodes of 8xh100", &["pass one, as hgx-h100x2+ib-ndr-8"]),
        ("4 nodes hgx-h100", &["pass one, as hgx-h100x4+ib-ndr-8"]),
        ("4xp4d.24xlarge", &["pass one, as hgx-a100x4+ib-ndr-8 with gpu a100-sxm-40gb"]),
        ("16xL40S", &["l40s-8-p2p has 8 GPUs, and nodes", "l40s-8-p2px2+ib-ndr-1 ("]),
        ("h100x16+ib-ndr-8", &["`h100x16` is 16 GPUs, or 16 nodes"]),
        ("[0,3]", &["names GPUs of no machine: write hgx-h100[0,3]"]),
        ("p5", &["p5.48xlarge (hgx-h100), p5.4xlarge (hgx-h100[0])"]),
        (
            "8xV100",
            &["dgx1-v100 (8 x V100, NVLink 2 hybrid cube mesh)", "pcie3-8-p2p (8 x V100, PCIe 3, peer to peer)"],
        ),
        ("8xMI375X", &["mi355x, models of GPUs that are known"]),
        ("8xGaudi3", &["`8xGaudi3`: choose from its number of GPUs"]),
        ("h100x0", &["no machine is called `h100x0`"]),
        ("hgx-h100x0", &["no machine is called `hgx-h100x0`"]),
        ("gpu:h100:0", &["no machine is called `gpu:h100:0`"]),
        ("2xH100[0]+ib-ndr-8", &["no cluster is written so"]),
        ("hgx-h10", &["hgx-h100 (8 x H100, NVLink 4, NVSwitch)"]),
        ("H100 lunchbox", &["hgx-h100 (8 x H100"]),
        ("A100 lunchbox", &["hgx-a100 (", "with this GPU"]),
        ("SYS-821GE-TNHR", &["choose from its number of GPUs and their model (8xH100)"]),
        ("hgx-h100 with nvlink", &["choose from `nvlink x2`"]),
        ("hgx-h100 with gpu l40s", &["a L40S has other links than its H100 SXM: choose from h100-sxm, h200"]),
        ("hgx-h100+ib-ndr-8", &["no cluster is written so"]),
        (" , ", &["no machine is named"]),
        ("nowhere.toml", &["nowhere.toml: there is no such file"]),
        ("unnamed.txt", &["pass gpu"]),
    ] {
        let found = names(typed);
        assert!(found.starts_with('!'), "{typed}: {found}");
        said.iter().for_each(|part| assert!(found.contains(part), "{typed}: {found}\nlacks {part}"));
    }
}

#[test]
fn gpu_is_for_files_that_do_not_name_theirs() {
    let l40s = gpus::named("NVIDIA L40S").unwrap();
    assert_eq!(machines("unnamed.txt,hgx-h100", Some(l40s), &read).unwrap()[0].gpu, l40s);
    for typed in ["hgx-h100", "a.toml", "a.tomlx2+n.toml"] {
        let error = machines(typed, Some(l40s), &read).unwrap_err().to_string();
        assert!(error.contains("`gpu` is for files") && error.contains("with gpu a100-sxm-40gb"), "{error}");
    }
}

#[test]
fn every_other_name_is_that_of_one_machine_or_of_gpus_that_the_error_names() {
    let mut known: Vec<String> = Vec::new();
    for name in other_names() {
        match preset(name) {
            Ok(found) => assert_eq!(preset(&found.name).as_ref(), Ok(&found), "{name}"),
            Err(error) => assert!(error.to_string().contains(&format!("{name} (")), "{name}: {error}"),
        }
        known.push(name.to_lowercase());
    }
    known.sort_unstable();
    known.windows(2).for_each(|two| assert_ne!(two[0], two[1], "a name stands for one machine"));
    for row in rows() {
        let name = &row.fabric.name;
        assert_eq!(preset(&name.to_uppercase()).unwrap(), row.fabric);
        if row.fabric.nodes() == 1 {
            let of_one = format!("{name}[0]x2+roce-100-1");
            assert!(
                preset(&of_one).map_or_else(|error| !error.to_string().contains("write"), |found| found.name == of_one)
            );
        }
    }
}

#[test]
fn a_cluster_with_other_nodes_keeps_its_changes() {
    let four = preset("hgx-h100x4+ib-ndr-8 with nics 4 with nvlink x2").unwrap();
    assert_eq!(four.with_nodes(2).unwrap(), preset("hgx-h100x2+ib-ndr-8 with nics 4 with nvlink x2").unwrap());
    assert_eq!(four.with_nodes(1).unwrap(), preset("hgx-h100 with nvlink x2").unwrap());
    assert!(preset("hgx-h100").unwrap().with_nodes(2).is_err());
    let of_changed = cluster(&preset("p4d.24xlarge").unwrap(), 2, network("ib-ndr-8").unwrap()).unwrap();
    assert_eq!(of_changed.name, "hgx-a100x2+ib-ndr-8 with gpu a100-sxm-40gb", "in the grammar of machines");
}
