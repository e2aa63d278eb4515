//! Names of kernels for the profiler.
//!
//! A launch has the name that its library registered. A product of matrices has none, since cuBLAS would choose the kernel:
//! its name says that it is a product, its types and its shape. A collective has the name of NCCL's kernel for it.
use std::ffi::CStr;

use crate::log::{self, LogRecord, RecordKind};

/// The name of the kernel of a record. Names that are made here are kept by the log, as long as the profiler expects.
pub(super) fn kernel_name(record: &LogRecord) -> &'static CStr {
    let text = |name: u32| log::text(name).unwrap_or(c"unknown");
    match record.kind {
        kind if kind == RecordKind::Gemm as u16 => text(log::name(&product(record))),
        kind if kind == RecordKind::Collective as u16 => text(log::name(&collective(text(record.name), record))),
        _ => text(record.name),
    }
}

/// `gemm_bf16_tn_4096x1024x512`, and the batch if it is not 1.
fn product(record: &LogRecord) -> String {
    let [m, n, k, batch, transposes, types] = record.args;
    let dtype = match types & 0xff {
        0 => "f32",
        1 => "f64",
        2 => "f16",
        3 => "i8",
        4 => "c64",
        5 => "c128",
        14 => "bf16",
        28 => "f8e4m3",
        29 => "f8e5m2",
        33 => "f4e2m1",
        _ => "other",
    };
    let order = |transposed: bool| if transposed { "t" } else { "n" };
    let (a, b) = (order(transposes & 2 != 0), order(transposes & 1 != 0));
    let times = if batch == 1 { String::new() } else { format!("x{batch}") };
    format!("gemm_{dtype}_{a}{b}_{m}x{n}x{k}{times}")
}

/// `ncclDevKernel_AllReduce_Sum_bf16_RING_LL(...)`.
fn collective(name: &CStr, record: &LogRecord) -> String {
    const DTYPES: [&str; 12] =
        ["i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2"];
    let dtype = DTYPES.get(record.args[1] as usize).copied().unwrap_or("u8");
    let op = match record.args[3] {
        0 => "Sum",
        1 => "Prod",
        2 | 3 => "MinMax",
        4 => "SumPostDiv",
        _ => "PreMulSum",
    };
    let what = match name.to_bytes() {
        b"all_reduce" => format!("AllReduce_{op}_{dtype}_RING_LL"),
        b"reduce_scatter" => format!("ReduceScatter_{op}_{dtype}_RING_LL"),
        b"reduce" => format!("Reduce_Sum_{dtype}_RING_LL"),
        b"all_gather" => "AllGather_RING_LL".into(),
        b"broadcast" => "Broadcast_RING_LL".into(),
        _ => "SendRecv".into(),
    };
    format!("ncclDevKernel_{what}(ncclDevKernelArgsStorage<4096ul>)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: RecordKind, name: u32, args: [u64; 6]) -> LogRecord {
        LogRecord { kind: kind as u16, device: 0, stream: 0, name, op: 0, args }
    }

    #[test]
    fn products_and_collectives_say_what_they_are() {
        let product = record(RecordKind::Gemm, 0, [64, 32, 16, 1, 2, 14]);
        assert_eq!(kernel_name(&product), c"gemm_bf16_tn_64x32x16");
        let reduce = record(RecordKind::Collective, log::name("all_reduce"), [8, 7, 1, 0, 0, 32]);
        let expected = c"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
        assert_eq!(kernel_name(&reduce), expected);
        let launch = record(RecordKind::Launch, log::name("_Z3addPf"), [1; 6]);
        assert_eq!(kernel_name(&launch), c"_Z3addPf");
    }
}
