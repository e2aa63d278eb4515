//! Records: what a program asks of the GPU, one call each. Python reads them in place (`exports`).
use crate::Handle;

/// Declares the kinds of records: the name of each, its number and the content of its arguments.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal;)*) => {
        /// What a record says, and the content of its name and arguments.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u16)]
        pub enum RecordKind {
            $($(#[doc = $doc])+ $name = $number,)*
        }

        /// Name, number and content of each kind.
        pub(crate) const KINDS: &[(&str, u16, &str)] = &[$((stringify!($name), $number, concat!($($doc),+))),*];
    };
}

kinds! {
    /// Name of the kernel. Blocks of the grid, threads per block, bytes of shared memory.
    Launch = 1;
    /// Name of the call. m, n, k, batch, transposes (2 a + b), types (a | c << 8 | epilogue << 16 | compute << 32).
    Gemm = 2;
    /// Bytes, direction (3: within the GPU, 2: to it, 1: from it, 0: on the host).
    Copy = 3;
    /// Bytes.
    Fill = 4;
    /// An event is recorded: its number.
    EventRecord = 5;
    /// The stream waits for an event: its number.
    StreamWait = 6;
    /// Bytes, address; in a recording, from the start of the GPU's memory.
    Malloc = 7;
    /// Bytes, address; in a recording, from the start of the GPU's memory.
    Free = 8;
    /// Name. Count, ncclDataType, communicator, op or root or peer, number of the group call (0: none), bytes.
    Collective = 9;
    /// 0: for the device, 1: for the stream of the record, 2: for the event in args[1].
    HostWait = 11;
    /// Name. Number, ranks, rank.
    Communicator = 12;
    /// A stream is made: flags, priority.
    StreamMade = 13;
    /// A function of the host runs in the order of the stream.
    HostFunction = 14;
    /// A CUDA graph is launched: the number of records after this one that are its copies.
    GraphLaunch = 15;
}

impl RecordKind {
    /// Whether a record of this kind becomes part of a CUDA graph when its stream captures one.
    pub fn is_captured(self) -> bool {
        !matches!(
            self,
            RecordKind::Malloc
                | RecordKind::Free
                | RecordKind::HostWait
                | RecordKind::Communicator
                | RecordKind::StreamMade
        )
    }
}

/// The bit of [`LogRecord::kind`] that says: captured in a CUDA graph, did not run now.
pub const CAPTURED: u16 = 0x100;

/// Declares a record, and the list of its fields.
macro_rules! record {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty,)*) => {
        /// One record.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(C)]
        pub struct LogRecord {
            $($(#[doc = $doc])+ pub $name: $type,)*
        }

        /// Name and type of each field. No bytes lie between them.
        pub(crate) const FIELDS: &[(&str, &str)] = &[$((stringify!($name), stringify!($type))),*];
        const _: () = assert!(size_of::<LogRecord>() == 0 $(+ size_of::<$type>())*);
    };
}

record! {
    /// A [`RecordKind`], and perhaps [`CAPTURED`].
    kind: u16,
    /// The GPU.
    device: u16,
    /// The stream, 0 for the default stream.
    stream: u32,
    /// The name, see [`name`](crate::log::name).
    name: u32,
    /// The operator that Python had set in this thread.
    op: u32,
    /// Arguments by kind.
    args: [u64; 6],
}

/// The number of a stream's handle. Handles below the first stream mean the default stream.
pub fn stream_number(stream: Handle) -> u32 {
    stream.saturating_sub(0x10000) as u32 >> 6
}
