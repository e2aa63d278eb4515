//! NCCL's topology: what it lists is there, what it lacks is said, and nothing makes it panic.

use nvcoll_fabric::hardware::DeviceKind;
use nvcoll_fabric::preset::preset;
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
        ("", "no format"),
        ("<system", "root"),
        ("<graphs version=\"1\"/>", "a topology is a <system>"),
        (without_gpus.as_str(), "lists no GPU"),
        (&SYSTEM.replace("8 GT/s", "9 GT/s"), "9"),
        (&SYSTEM.replace("count=\"4\"", "count=\"-4\""), "count is `-4`"),
        (&SYSTEM.replace("count=\"12\"", "count=\"0\""), "count of a link of gpu0 is 0"),
        (&SYSTEM.replace("count=\"12\"", "count=\"6\""), "6 NVLinks to the switch, a A100 SXM has 12"),
        (&SYSTEM.replace("target=\"0000:06:00.0\"", "target=\"0000:77:00.0\""), "which is not there"),
    ] {
        let error = read(text, "a100-sxm").unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    let error = read(SYSTEM, "rtx4090").unwrap_err().to_string();
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
    let text = text.join("\n");
    for gpu in ["h100-sxm", "a100-sxm", "v100-sxm", "mi300x"] {
        let error = read(&text, gpu).unwrap_err().to_string();
        assert!(error.contains("lists no NVLink") && error.contains("NCCL_TOPO_DUMP_FILE"), "{error}");
    }
    let fabric = read(&text, "a100-pcie").unwrap();
    assert!(fabric.sources.iter().any(|source| source.contains("there is no bridge")));
    assert!(read(&text, "l40s").is_ok());
    assert!(read(&on_chips(&[], 1), "h100-sxm").is_ok(), "one GPU has nobody to be linked to");
}

/// Files of real machines, if somebody has some: `NVCOLL_TOPOLOGIES=DIR cargo test -p nvcoll-fabric --test nccl_xml`.
#[test]
fn every_file_of_a_folder_is_read_or_refused() {
    let Ok(folder) = std::env::var("NVCOLL_TOPOLOGIES") else { return };
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "xml") {
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let gpu = if name.contains("rccl") { "mi300x" } else { "a100-sxm" };
            match Fabric::from_text(&text, Some(gpu), &name) {
                Ok(fabric) => {
                    let rates = fabric.alone().map(|_| "joined").map_err(|error| error.to_string());
                    println!("{name}: {} GPUs, {} devices, {rates:?}", fabric.world_size(), fabric.devices.len());
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
    fn any_change_of_a_file_is_a_fabric_or_an_error(at in 0..SYSTEM.len(), len in 0usize..40, by in "[ a-z0-9<>/\"=]{0,8}") {
        let mut text = SYSTEM.to_owned();
        text.replace_range(at..(at + len).min(text.len()), &by);
        if let Ok(fabric) = read(&text, "a100-sxm") {
            let _ = fabric.alone();
        }
    }
}
