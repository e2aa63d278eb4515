//! `rocm-smi --showtopo` and `amd-smi topology`: what they say comes back, what they leave open is refused.

use nvcoll_fabric::hardware::DeviceKind;
use nvcoll_fabric::machines::preset;
use nvcoll_fabric::{Error, Fabric};
use proptest::prelude::*;

fn read(text: &str, gpu: Option<&str>) -> Result<Fabric, Error> {
    Fabric::from_text(text, gpu, "text")
}

/// A table of `n` GPUs: the cell of each pair, and that of a GPU and itself.
fn table(names: &[String], own: &str, cell: impl Fn(usize, usize) -> String) -> String {
    let row = |a: usize| {
        let cells: Vec<String> = (0..names.len()).map(|b| if a == b { own.to_owned() } else { cell(a, b) }).collect();
        format!("{}   {}\n", names[a], cells.join("         "))
    };
    let rows: String = (0..names.len()).map(row).collect();
    format!("       {}\n{rows}\n", names.join("         "))
}

/// What rocm-smi prints of GPUs on two NUMA nodes. Made for this test.
fn rocm_smi(n: usize, kind: impl Fn(usize, usize) -> &'static str, weight: impl Fn(usize, usize) -> u32) -> String {
    let names: Vec<String> = (0..n).map(|gpu| format!("GPU{gpu}")).collect();
    let title = |title: &str| format!("=========== {title} ===========\n");
    let numa = |gpu: usize| {
        let node = gpu * 2 / n;
        format!("GPU[{gpu}]\t\t: (Topology) Numa Node: {node}\nGPU[{gpu}]\t\t: (Topology) Numa Affinity: {node}\n")
    };
    [
        title("ROCm System Management Interface"),
        title("Weight between two GPUs") + &table(&names, "0", |a, b| weight(a, b).to_string()),
        title("Hops between two GPUs") + &table(&names, "0", |_, _| "1".to_owned()),
        title("Link Type between two GPUs") + &table(&names, "0", |a, b| kind(a, b).to_owned()),
        title("Numa Nodes") + &(0..n).map(numa).collect::<String>(),
        title("End of ROCm SMI Log"),
    ]
    .concat()
}

/// What amd-smi prints: bus addresses are the names. Made for this test.
fn amd_smi(n: usize) -> String {
    let names: Vec<String> = (0..n).map(|gpu| format!("0000:{gpu}5:00.0")).collect();
    [
        "ACCESS TABLE:\n".to_owned() + &table(&names, "ENABLED", |_, _| "ENABLED".to_owned()),
        "WEIGHT TABLE:\n".to_owned() + &table(&names, "0", |_, _| "15".to_owned()),
        "LINK TYPE TABLE:\n".to_owned() + &table(&names, "SELF", |_, _| "XGMI".to_owned()),
        "NUMA BW TABLE:\n".to_owned() + &table(&names, "N/A", |_, _| "50000-100000".to_owned()),
    ]
    .concat()
}

#[test]
fn eight_gpus_are_the_board() {
    let board = preset("mi300x-8").unwrap();
    for text in [rocm_smi(8, |_, _| "XGMI", |_, _| 15), amd_smi(8)] {
        let fabric = read(&text, Some("mi300x")).unwrap();
        assert_eq!(fabric.matrix().unwrap(), board.matrix().unwrap());
        assert_eq!(fabric.alone().unwrap(), board.alone().unwrap());
    }
    let fabric = read(&rocm_smi(8, |_, _| "XGMI", |_, _| 15), Some("mi325x")).unwrap();
    assert_eq!(fabric.of_kind(DeviceKind::Socket).count(), 2);
}

#[test]
fn the_model_is_named_beside_the_matrix() {
    let text = rocm_smi(8, |_, _| "XGMI", |_, _| 15);
    let error = read(&text, None).unwrap_err().to_string();
    assert!(error.contains("pass gpu"), "{error}");
    let named = format!("GPU[0]\t\t: Card Series: \t\tAMD Instinct MI300X OAM\n{text}");
    assert_eq!(read(&named, None).unwrap().gpu.name, "mi300x");
    let error = read(&named, Some("mi325x")).unwrap_err().to_string();
    assert!(error.contains("gpu is mi325x, but it is about GPUs mi300x"), "{error}");
    let error = read(&text, Some("h100-sxm")).unwrap_err().to_string();
    assert!(error.contains("H100 SXM is not of AMD"), "{error}");
}

#[test]
fn bridges_and_pcie_are_told_apart() {
    let hives =
        rocm_smi(8, |a, b| if a / 4 == b / 4 { "XGMI" } else { "PCIE" }, |a, b| if a / 4 == b / 4 { 15 } else { 72 });
    let matrix = read(&hives, Some("mi210")).unwrap().matrix().unwrap();
    assert_eq!(matrix[0][1..5], ["XGMI", "XGMI", "XGMI", "SYS"]);
    let apart = rocm_smi(4, |_, _| "PCIE", |_, _| 52);
    assert_eq!(read(&apart, Some("mi210")).unwrap().matrix().unwrap()[0], ["X", "PHB", "SYS", "SYS"]);
    let error = read(&apart, Some("mi300x")).unwrap_err().to_string();
    assert!(error.contains("it has no XGMI"), "{error}");
    let dies = rocm_smi(4, |_, _| "XGMI", |a, b| if a / 2 == b / 2 { 15 } else { 30 });
    let error = read(&dies, Some("mi250x")).unwrap_err().to_string();
    assert!(error.contains("does not say how many join a pair"), "{error}");
    let near = read(&dies, Some("mi210")).unwrap();
    assert_eq!(near.matrix().unwrap()[0][1], "XGMI");
    assert!(
        near.links.iter().any(|link| link.medium.name == "xgmi2" && link.lanes == 3),
        "a bridge of two has all links"
    );
}

#[test]
fn what_is_cut_off_is_refused() {
    let text = rocm_smi(4, |_, _| "XGMI", |_, _| 15);
    let at = text.find("Link Type").unwrap();
    let row = at + text[at..].find("GPU3   ").unwrap();
    let error = read(&text[..row + 20], Some("mi300x")).unwrap_err().to_string();
    assert!(error.contains("cut off"), "{error}");
    let error = read(&text.replace("GPU2   XGMI", "GPU2   FOO"), Some("mi300x")).unwrap_err().to_string();
    assert!(error.contains("GPU0 to GPU2 is `XGMI`, the other way `FOO`"), "{error}");
}

proptest! {
    #[test]
    fn any_change_of_a_table_is_a_fabric_or_an_error(at in 0usize..3000, len in 0usize..60, by in "[ A-Z0-9\n]{0,8}") {
        let mut text = rocm_smi(4, |_, _| "XGMI", |_, _| 15);
        let at = at.min(text.len());
        text.replace_range(at..(at + len).min(text.len()), &by);
        if let Ok(fabric) = read(&text, Some("mi300x")) {
            let _ = fabric.alone();
        }
    }
}
