//! NCCL's topology: the machine has all that the file lists, `sources` name all that it lacks, and nothing makes it panic.

use nvcoll_fabric::hardware::DeviceKind;
use nvcoll_fabric::machines::preset;
use nvcoll_fabric::{Error, Fabric};
use proptest::prelude::*;

fn read(text: &str, gpu: &str) -> Result<Fabric, Error> {
    Fabric::from_text(text, Some(gpu), "text")
}

/// Two sockets with a switch each: two GPUs and a NIC, and one GPU. Made for this test.
const SYSTEM: &str = r#"<system version="1">
  <cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1">
    <pci busid="0000:01:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:02:00.0" class="0x030200" link_speed="16 GT/s" link_width="16">
        <gpu dev="0" sm="80" rank="0" gdr="1">
          <nvlink target="0000:06:00.0" count="4" tclass="0x030200"/>
          <nvlink target="0000:0f:00.0" count="12" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:03:00.0" class="0x030200" link_speed="" link_width="0"/>
      <pci busid="0000:04:00.0" class="0x020700" link_speed="16 GT/s" link_width="8">
        <nic><net name="mlx5_0" dev="0" speed="200000"/></nic>
      </pci>
    </pci>
  </cpu>
  <cpu numaid="1" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1">
    <pci busid="0000:06:00.0" class="0x030200" link_speed="8 GT/s" link_width="16">
      <gpu dev="1" sm="80" rank="1" gdr="1">
        <nvlink target="0000:02:00.0" count="4" tclass="0x030200"/>
        <nvlink target="0000:0f:00.0" count="12" tclass="0x068000"/>
      </gpu>
    </pci>
    <nic><net name="eth0" dev="0" speed="100000"/></nic>
  </cpu>
</system>"#;

#[test]
fn devices_and_links_are_those_of_the_file() {
    let fabric = read(SYSTEM, "a100-sxm").unwrap();
    assert_eq!(fabric.world_size(), 3);
    assert_eq!((fabric.of_kind(DeviceKind::Nic).count(), fabric.of_kind(DeviceKind::Socket).count()), (2, 2));
    let words = fabric.matrix().unwrap();
    assert_eq!(words[0], ["X", "PIX", "NV4"]);
    assert_eq!(words[1][2], "SYS");
    let own = |at: usize, medium: &str| fabric.links.iter().any(|link| link.from == at && link.medium.name == medium);
    assert!(own(0, "pcie4") && own(1, "pcie4") && own(2, "pcie3"));
    let switch = fabric.device("nvswitch").unwrap();
    assert!(fabric.links.iter().any(|link| link.to == switch && link.lanes == 12));
}

#[test]
fn what_is_no_topology_is_refused_with_the_reason() {
    let without_gpus = SYSTEM.replace("0x0302", "0xff02").replace("<gpu", "<g").replace("</gpu>", "</g>");
    for (text, reason) in [
        ("", "it is empty"),
        ("<system", "root"),
        ("<graphs version=\"1\"/>", "what NCCL_GRAPH_DUMP_FILE wrote"),
        ("<algo name=\"ring\"/>", "an algorithm of MSCCL"),
        ("<topology version=\"2.0\"/>", "hwloc"),
        ("<xml/>", "no topology of NCCL, which is a <system>"),
        (without_gpus.as_str(), "lists no GPU"),
        (&SYSTEM.replace("8 GT/s", "9 GT/s"), "9"),
        (&SYSTEM.replace("count=\"4\"", "count=\"-4\""), "count is `-4`"),
        (&SYSTEM.replace("count=\"12\"", "count=\"0\""), "count of a link of gpu0 is 0"),
        (&SYSTEM.replace("count=\"12\"", "count=\"6\""), "6 NVLinks to the switch, a A100 SXM has 12"),
        (&SYSTEM.replace("target=\"0000:06:00.0\"", "target=\"0000:77:00.0\""), "which is not there"),
        (&SYSTEM.replace("target=\"0000:06:00.0\"", "target=\"0000:02:00.0\""), "a link of gpu0 leads to itself"),
        (&SYSTEM.replace("0000:06:00.0", "0000:02:00.0"), "two GPUs have busid 0000:02:00.0"),
    ] {
        let error = read(text, "a100-sxm").unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    let error = read(SYSTEM, "rtx4090").unwrap_err().to_string();
    assert!(error.contains("gpu is rtx4090, but it says compute capability 8.0"), "{error}");
    let bridge: Vec<&str> = SYSTEM.lines().filter(|line| !line.contains("0x068000")).collect();
    let bridge = bridge.join("\n").replace("count=\"4\"", "count=\"12\"");
    let error = read(&bridge, "a30").unwrap_err().to_string();
    assert!(error.contains("two GPUs are joined by 12 links, a A30 has 4: it is another GPU"), "{error}");
    assert!(read(&bridge, "a100-pcie").is_ok());
    let error = read(&SYSTEM.replace("sm=\"80\"", ""), "rtx4090").unwrap_err().to_string();
    assert!(error.contains("no NVLink"), "{error}");
}

/// What NCCL dumps on a board with several NVSwitch chips: one link for each chip. Made for this test.
fn on_chips(links: &[u32], gpus: u32) -> String {
    let link = |(chip, count): (usize, &u32)| {
        format!(r#"<nvlink target="0000:c{chip}:00.0" count="{count}" tclass="0x068000"/>"#)
    };
    let links: String = links.iter().enumerate().map(link).collect();
    let gpu = |n: u32| format!(r#"<pci busid="{n}" class="0x030200"><gpu dev="{n}" rank="{n}">{links}</gpu></pci>"#);
    let gpus: String = (0..gpus).map(gpu).collect();
    format!(r#"<system version="1"><cpu numaid="0" vendor="GenuineIntel" modelid="143">{gpus}</cpu></system>"#)
}

#[test]
fn links_to_the_chips_of_a_switch_add_up() {
    for (model, links, preset_name) in [
        ("h100-sxm", &[5, 5, 4, 4][..], "hgx-h100"),
        ("a100-sxm", &[2, 2, 2, 2, 2, 2], "hgx-a100"),
        ("v100-sxm", &[1, 1, 1, 1, 1, 1], "dgx2[0-7]"),
    ] {
        let (fabric, board) = (read(&on_chips(links, 8), model).unwrap(), preset(preset_name).unwrap());
        assert_eq!(fabric.of_kind(DeviceKind::Nvswitch).count(), 1, "{model}");
        assert_eq!(fabric.matrix().unwrap(), board.matrix().unwrap(), "{model}");
        assert_eq!(fabric.alone().unwrap(), board.alone().unwrap(), "{model}");
    }
    assert!(read(&on_chips(&[2, 2, 2, 2], 8), "h800").is_ok());
    let error = read(&on_chips(&[2, 2, 2, 2], 8), "h100-sxm").unwrap_err().to_string();
    assert!(error.contains("8 NVLinks to the switch") && error.contains("another GPU"), "{error}");
}

#[test]
fn a_file_without_nvlinks_is_refused_where_gpus_cannot_be_without() {
    let text: Vec<&str> = SYSTEM.lines().filter(|line| !line.contains("nvlink")).collect();
    let text = text.join("\n").replace("sm=\"80\"", "");
    for gpu in ["h100-sxm", "a100-sxm", "v100-sxm", "mi300x"] {
        let error = read(&text, gpu).unwrap_err().to_string();
        assert!(error.contains("lists no NVLink") && error.contains("they were down"), "{error}");
    }
    let fabric = read(&text, "a100-pcie").unwrap();
    assert!(fabric.sources.iter().any(|source| source.contains("there is no bridge")));
    assert!(read(&text, "l40s").is_ok());
    assert!(read(&on_chips(&[], 1), "h100-sxm").is_ok(), "one GPU has nobody to be linked to");
}

/// What a cloud ships: GPUs and cards without NVLinks, in NUMA nodes of `each` GPUs. Made for this test.
fn of_cloud(gpus: u32, each: u32, attributes: &str) -> String {
    let gpu = |n: u32| {
        let card = format!(r#"<pci busid="{n}:1" class="0x020700" link_speed="32 GT/s" link_width="16"/>"#);
        format!(
            r#"<pci busid="{n}:2" class="0x060400"><pci busid="{n}" class="0x030200" {attributes} link_speed="32 GT/s"/>{card}</pci>"#
        )
    };
    let node = |first: u32| {
        let gpus: String = (first..first + each).map(gpu).collect();
        format!(r#"<cpu numaid="{}" vendor="AuthenticAMD" modelid="49">{gpus}</cpu>"#, first / each)
    };
    let nodes: String = (0..gpus / each).map(|nth| node(nth * each)).collect();
    format!(r#"<system version="1">{nodes}</system>"#)
}

#[test]
fn a_cloud_file_is_completed_where_the_number_of_gpus_leaves_no_doubt() {
    for (model, board) in
        [("h100-sxm", "hgx-h100"), ("a100-sxm", "hgx-a100"), ("b200", "hgx-b200"), ("mi300x", "mi300x-8")]
    {
        let (fabric, board) = (read(&of_cloud(8, 4, ""), model).unwrap(), preset(board).unwrap());
        assert_eq!(fabric.matrix().unwrap(), board.matrix().unwrap(), "{model}");
        assert_eq!(fabric.alone().unwrap(), board.alone().unwrap(), "{model}");
        assert_eq!(fabric.abilities, board.abilities, "{model}");
        assert!(fabric.sources.iter().any(|source| source.contains("added as on every board of 8")), "{model}");
    }
    for (gpus, model, names) in
        [(4, "h100-sxm", "hgx-h100"), (8, "v100-sxm", "name a machine: dgx1-v100, dgx2"), (4, "gb200", "gb200-4")]
    {
        let error = read(&of_cloud(gpus, gpus / 2, ""), model).unwrap_err().to_string();
        assert!(error.contains("leaves them to NCCL") && error.contains(names), "{error}");
    }
}

#[test]
fn the_model_is_known_by_the_pci_device_or_by_what_fits() {
    let without = |text: &str| Fabric::from_text(text, None, "text");
    let found = |text: &str| without(text).map(|fabric| fabric.gpu.name.clone()).map_err(|error| error.to_string());
    for (id, model) in [("0x2330", "h100-sxm"), ("0x20B2", "a100-sxm"), ("0x2901", "b200"), ("0x2335", "h200")] {
        assert_eq!(found(&of_cloud(8, 4, &format!(r#"vendor="0x10de" device="{id}""#))), Ok(model.to_owned()));
    }
    let text = of_cloud(8, 4, r#"vendor="0x10de" device="0x2330""#);
    let error = read(&text, "h200").unwrap_err().to_string();
    assert!(error.contains("gpu is h200, but it is about GPUs h100-sxm"), "{error}");
    let error = found(&text.replacen("0x2330", "0x2335", 1)).unwrap_err();
    assert!(error.contains("H200 SXM and H100 SXM: pass GPUs of one model"), "{error}");
    let unknown = of_cloud(2, 1, r#"vendor="0x10de" device="0x2bff""#);
    let error = found(&unknown).unwrap_err();
    assert!(error.contains("10de:2bff, which is no known GPU: pass gpu"), "{error}");
    let named = read(&unknown, "l40s").unwrap();
    assert!(named.sources.iter().any(|source| source == "10de:2bff is taken for L40S, as given"));
    let error = found(&of_cloud(2, 1, "")).unwrap_err();
    assert!(error.contains("does not say which GPUs it is about: pass gpu"), "{error}");

    let of_sm = |sm: u32, links: &[u32]| on_chips(links, 8).replace("<gpu ", &format!("<gpu sm=\"{sm}\" "));
    assert_eq!(found(&of_sm(80, &[2; 6])), Ok("a100-sxm".to_owned()), "no other model has 12 links to a switch");
    let error = found(&of_sm(90, &[5, 5, 4, 4])).unwrap_err();
    assert!(error.contains("it fits h100-sxm, h200, h20"), "{error}");
    let error = found(&of_sm(87, &[])).unwrap_err();
    assert!(error.contains("no known GPU fits its GPUs of compute capability 8.7"), "{error}");
    let error = read(&of_sm(90, &[5, 5, 4, 4]), "b200").unwrap_err().to_string();
    assert!(error.contains("gpu is b200, but it says compute capability 9.0"), "{error}");
}

#[test]
fn numa_nodes_of_one_socket_are_one_socket() {
    let sockets = |text: &str| {
        let fabric = read(text, "h100-pcie").unwrap();
        let is_told = fabric.sources.iter().any(|source| source.contains("(NPS)"));
        (fabric.of_kind(DeviceKind::Socket).count(), is_told)
    };
    assert_eq!(sockets(&of_cloud(8, 8, "")), (1, false));
    assert_eq!(sockets(&of_cloud(8, 4, "")), (2, false));
    assert_eq!(sockets(&of_cloud(8, 2, "")), (2, true));
    assert_eq!(sockets(&of_cloud(8, 1, "")), (2, true));
    assert_eq!(sockets(&of_cloud(8, 1, "").replace("vendor", "arch=\"arm64\" vendor")), (8, false));
    let matrix = read(&of_cloud(8, 1, ""), "h100-pcie").unwrap().matrix().unwrap();
    assert_eq!(matrix[0][1..], ["PHB", "PHB", "PHB", "SYS", "SYS", "SYS", "SYS"]);
    let empty = of_cloud(2, 1, "").replace("</system>", r#"<cpu numaid="7"/></system>"#);
    assert_eq!(sockets(&empty), (2, false), "nothing is on the last");
}

/// A tray of a rack: two Grace, each with two GPUs and a card. Made for this test.
fn tray(hash: &str, first_rank: u32) -> String {
    let gpu = |n: u32| {
        let inside = r#"<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/><c2c bw="40000" count="10"/>"#;
        let pci = format!(r#"<pci busid="000{n}:01:00.0" class="0x030200" link_speed="32 GT/s" link_width="16">"#);
        format!(r#"{pci}<gpu dev="{n}" sm="100" rank="{}">{inside}</gpu></pci>"#, first_rank + n)
    };
    let card = r#"<pci busid="9" class="0x020700"><nic><net name="mlx5_0" speed="400000"/></nic></pci>"#;
    let cpu = |n: u32| {
        let head = format!(r#"<cpu host_hash="{hash}" numaid="{n}" arch="arm64" vendor="NVIDIA">"#);
        format!("{head}{}{}{card}</cpu>", gpu(2 * n), gpu(2 * n + 1))
    };
    format!("{}{}", cpu(0), cpu(1))
}

#[test]
fn a_tray_is_two_processors_and_hosts_of_one_domain_are_trays() {
    let system = |inside: &str| format!(r#"<system version="1">{inside}</system>"#);
    let one = Fabric::from_text(&system(&tray("0x1", 0)), None, "tray").unwrap();
    assert_eq!((one.gpu.name.as_str(), one.of_kind(DeviceKind::Socket).count()), ("gb200", 2));
    let board = preset("gb200-4").unwrap();
    assert_eq!(one.matrix().unwrap(), board.matrix().unwrap());
    assert_eq!(one.alone().unwrap(), board.alone().unwrap());

    let two_hashes = system(&format!("{}{}", tray("0x1", 4), tray("0x2", 0)));
    let head = "<?xml version=\"1.0\"?>\n";
    let two_systems = format!("{head}{}\n{head}{}", system(&tray("0x1", 4)), system(&tray("0x1", 0)));
    let board = preset("gb200-8").unwrap();
    for text in [two_hashes, two_systems] {
        let fabric = Fabric::from_text(&text, None, "rack").unwrap();
        assert_eq!((fabric.world_size(), fabric.nodes(), fabric.of_kind(DeviceKind::Socket).count()), (8, 1, 4));
        assert_eq!(fabric.matrix().unwrap(), board.matrix().unwrap());
        let trays: Vec<Option<u32>> = fabric.gpus().iter().map(|&gpu| fabric.devices[gpu].tray).collect();
        assert_eq!(trays, [1, 1, 1, 1, 0, 0, 0, 0].map(Some), "ranks come from the file");
    }
    let boards = system(&format!("{}{}", tray("0x1", 0), tray("0x2", 4)));
    let boards = boards.replace("sm=\"100\"", "sm=\"90\"").replace(r#"<c2c bw="40000" count="10"/>"#, "");
    let error = read(&boards, "h100-sxm").unwrap_err().to_string();
    assert!(error.contains("GPUs of 2 hosts") && error.contains("nccl.xmlx2+ib-ndr-8"), "{error}");
}

#[test]
fn nvlinks_to_a_processor_are_no_switch() {
    let gpu = |n: u32| {
        let other = format!(r#"<nvlink target="{}" count="3" tclass="0x030200"/>"#, 1 - n);
        let processor = r#"<nvlink target="0004:00:00.0" count="3" tclass="0x068001"/>"#;
        format!(r#"<pci busid="{n}" class="0x030200"><gpu sm="70" rank="{n}">{other}{processor}</gpu></pci>"#)
    };
    let cpu = |n: u32, inside: &str| format!(r#"<cpu numaid="{}" arch="ppc64" vendor="IBM">{inside}</cpu>"#, 8 * n);
    let both = format!("{}{}", gpu(0), gpu(1));
    let text =
        format!("<system>{}{}</system>", cpu(0, &both), cpu(1, "<nic><net name=\"ib0\" speed=\"100000\"/></nic>"));
    let fabric = Fabric::from_text(&text, None, "power9").unwrap();
    assert_eq!(fabric.gpu.name, "v100-sxm");
    assert_eq!(fabric.of_kind(DeviceKind::Nvswitch).count(), 0);
    assert_eq!(fabric.of_kind(DeviceKind::Socket).count(), 2);
    assert_eq!(fabric.matrix().unwrap()[0], ["X", "NV3"]);
    assert!(fabric.links.iter().any(|link| link.from == 0 && link.medium.name == "nvlink2-cpu" && link.lanes == 3));
}

#[test]
fn a_gpu_without_a_link_to_the_switch_leaves_nobody_nvls() {
    let whole = read(&on_chips(&[5, 5, 4, 4], 8), "h100-sxm").unwrap();
    assert!(whole.abilities.switch_reduction && whole.abilities.multicast);
    let text = on_chips(&[5, 5, 4, 4], 8);
    let (start, last) = text.rsplit_once("<gpu ").unwrap();
    let links = last.find("<nvlink").unwrap()..last.find("</gpu>").unwrap();
    let down = format!("{start}<gpu {}{}", &last[..links.start], &last[links.end..]);
    let fabric = read(&down, "h100-sxm").unwrap();
    assert!(!fabric.abilities.switch_reduction && !fabric.abilities.multicast);
    assert!(fabric.sources.iter().any(|source| source.contains("without NVLS")));
    assert!(read(&on_chips(&[2; 4], 8), "h800").unwrap().abilities.switch_reduction, "NVIDIA/nccl#1374");
}

#[test]
fn links_of_rccl_are_infinity_fabric_and_its_instruction_sets_are_known() {
    let gpu = |n: u32, gcn: &str| {
        let link = |to: u32| format!(r#"<xgmi target="{to}" count="1" tclass="0x120000"/>"#);
        let links: String = (0..8).filter(|&to| to != n).map(link).collect();
        format!(r#"<pci busid="{n}" class="0x120000"><gpu sm="304" gcn="{gcn}" rank="{n}">{links}</gpu></pci>"#)
    };
    let system = |gcn: &str| {
        let gpus: String = (0..8).map(|n| gpu(n, gcn)).collect();
        format!(r#"<system version="2"><cpu numaid="0" vendor="AuthenticAMD">{gpus}</cpu></system>"#)
    };
    let fabric = read(&system("gfx942"), "mi300x").unwrap();
    assert_eq!(fabric.alone().unwrap(), preset("mi300x-8").unwrap().alone().unwrap());
    assert_eq!(read(&system("gfx950"), "mi355x").unwrap().gpu.name, "mi355x");
    let error = Fabric::from_text(&system("gfx942"), None, "text").unwrap_err().to_string();
    assert!(error.contains("it fits mi300x, mi325x, mi308x"), "{error}");
    let error = Fabric::from_text(&system("900"), None, "text").unwrap_err().to_string();
    assert!(error.contains("no known GPU fits its gfx900"), "{error}");
    let error = read(&system("908"), "mi300x").unwrap_err().to_string();
    assert!(error.contains("it says gfx908, which a Instinct MI300X is not"), "{error}");
    let error = read(&system("910"), "h100-sxm").unwrap_err().to_string();
    assert!(error.contains("it says gfx90a"), "{error}");
}

proptest! {
    #[test]
    fn any_change_of_a_file_is_a_fabric_or_an_error(at in 0..SYSTEM.len(), len in 0usize..40, by in "[ a-z0-9<>/\"=]{0,8}") {
        let mut text = SYSTEM.to_owned();
        text.replace_range(at..(at + len).min(text.len()), &by);
        if let Ok(fabric) = read(&text, "a100-sxm") {
            let _ = fabric.alone();
        }
    }
}
