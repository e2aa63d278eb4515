//! The bytes of a packet: a head that every version of nvcoll reads, then a body of the length that its kind says.
//!
//! ```text
//! head      magic 8 | layout 4 | kind 4 | version of nvcoll 24
//! hello     rank 4 | world size 4 | token 4+32 | job 4+88 | join 16 | name 4+16       also: answer; welcome, then 4+16 per rank
//! ready     -                                                                          also: go
//! refusal   code 4 | rank 4 | first 8 | second 8 | set of ranks 128
//! message   key 3 x 8 | number of words 4 | number of descriptors 4 | words 8 each
//! ```
//!
//! Numbers are little-endian. A text has a field of fixed length after its own length, and zeros behind it. A packet whose length is
//! not exactly that of its kind is no packet of nvcoll. The head keeps its form in all layouts, so that a rank can name the version
//! of another one.

use nvcoll_core::limits::MAX_RUNNING_RANKS;

/// The first bytes of every packet.
const MAGIC: [u8; 8] = *b"nvcoll\r\n";

/// The layout of the bodies. A change of a body adds 1.
const LAYOUT: u32 = 1;

/// The version of this crate.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
const VERSION_ROOM: usize = 24;
const _: () = assert!(VERSION.len() <= VERSION_ROOM);

/// The bytes of the head.
pub(super) const HEAD_BYTES: usize = MAGIC.len() + 8 + VERSION_ROOM;

/// The longest name of a job in bytes. Chosen: with prefix and user it fits the name of a socket.
pub(super) const JOB_ROOM: usize = 88;

/// The longest name that the kernel gives a socket. Chosen: it gives 5 bytes (unix(7)).
pub(super) const NAME_ROOM: usize = 16;

/// The most words of a message. Chosen: a message describes at most eight regions.
pub(super) const MOST_WORDS: usize = 64;

const HELLO_BYTES: usize = 4 + 4 + 36 + (4 + JOB_ROOM) + 16 + (4 + NAME_ROOM);
const RANK_SET_BYTES: usize = MAX_RUNNING_RANKS as usize / 8;

/// The bytes of the longest packet while ranks join: a welcome.
pub(super) const LONGEST_JOIN_PACKET: usize = HEAD_BYTES + HELLO_BYTES + MAX_RUNNING_RANKS as usize * (4 + NAME_ROOM);

/// The bytes of the longest packet from a stranger: a hello.
pub(super) const LONGEST_HELLO: usize = HEAD_BYTES + HELLO_BYTES;

/// The bytes of the longest message.
pub(super) const LONGEST_MESSAGE: usize = HEAD_BYTES + 24 + 8 + 8 * MOST_WORDS;

/// What a packet is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum PacketKind {
    /// A rank says who it is.
    Hello = 1,
    /// Rank 0 has seen all ranks and tells their names.
    Welcome = 2,
    /// A rank answers a hello of another one with its own.
    Answer = 3,
    /// A rank is connected with all others.
    Ready = 4,
    /// All ranks are.
    Go = 5,
    /// The join has failed, or the sender gives up.
    Refusal = 6,
    /// A message between ranks that have joined.
    Message = 7,
}

/// The reason why a packet cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It is not of nvcoll.
    Foreign,
    /// It is of this version of nvcoll.
    OtherVersion(String),
}

/// The name of a socket, at most [`NAME_ROOM`] bytes.
pub(super) type SocketName = Vec<u8>;

/// The words of a rank about itself.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) rank: u32,
    pub(super) world_size: u32,
    pub(super) token: Option<[u8; 32]>,
    pub(super) job: Vec<u8>,
    /// The number of the join, which rank 0 draws; zeros before a rank knows it.
    pub(super) join: [u64; 2],
    /// The name under which the rank listens; empty if no rank will connect to it.
    pub(super) listens_at: SocketName,
}

/// The fixed part of a refusal, whose meaning its code says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RefusalBody {
    pub(super) code: u32,
    pub(super) rank: u32,
    pub(super) numbers: [u64; 2],
    pub(super) ranks: Vec<u32>,
}

/// The words of a message, and the number of descriptors that it was sent with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MessageBody {
    pub(super) key: [u64; 3],
    pub(super) words: Vec<u64>,
    pub(super) descriptors: usize,
}

/// Bytes that are read field by field. Every method returns `None` where they end.
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a text with its length from a field of `room` bytes.
    fn text(&mut self, room: usize) -> Option<&'a [u8]> {
        let length = self.u32()? as usize;
        let (text, zeros) = self.bytes(room)?.split_at_checked(length)?;
        zeros.iter().all(|&byte| byte == 0).then_some(text)
    }

    /// Returns `value` if all bytes were read.
    fn end<T>(&self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

/// Appends a text and its length in a field of `room` bytes.
fn put_text(packet: &mut Vec<u8>, text: &[u8], room: usize) {
    assert!(text.len() <= room, "the callers check lengths");
    packet.extend((text.len() as u32).to_le_bytes());
    packet.extend(text);
    packet.resize(packet.len() + room - text.len(), 0);
}

/// Makes a packet that is a head only.
pub(super) fn head(kind: PacketKind) -> Vec<u8> {
    let mut packet = Vec::with_capacity(HEAD_BYTES);
    packet.extend(MAGIC);
    packet.extend(LAYOUT.to_le_bytes());
    packet.extend((kind as u32).to_le_bytes());
    packet.extend(VERSION.as_bytes());
    packet.resize(HEAD_BYTES, 0);
    packet
}

/// Reads the head of a packet; returns its kind and the fields of its body.
pub(super) fn open(packet: &[u8]) -> Result<(PacketKind, Fields<'_>), Unreadable> {
    let mut fields = Fields(packet);
    let mut head = || Some((fields.array()?, fields.u32()?, fields.u32()?, fields.bytes(VERSION_ROOM)?));
    let Some((MAGIC, layout, kind, version)) = head() else { return Err(Unreadable::Foreign) };
    let version = version.split(|&byte| byte == 0).next().unwrap_or_default();
    if !version.iter().all(u8::is_ascii_graphic) {
        return Err(Unreadable::Foreign);
    }
    if layout != LAYOUT || version != VERSION.as_bytes() {
        return Err(Unreadable::OtherVersion(String::from_utf8_lossy(version).into_owned()));
    }
    use PacketKind::*;
    let kinds = [Hello, Welcome, Answer, Ready, Go, Refusal, Message];
    let kind = kinds.into_iter().find(|&one| one as u32 == kind).ok_or(Unreadable::Foreign)?;
    Ok((kind, fields))
}

impl Hello {
    fn append(&self, packet: &mut Vec<u8>) {
        packet.extend(self.rank.to_le_bytes());
        packet.extend(self.world_size.to_le_bytes());
        packet.extend(u32::from(self.token.is_some()).to_le_bytes());
        packet.extend(self.token.unwrap_or_default());
        put_text(packet, &self.job, JOB_ROOM);
        packet.extend(self.join.map(u64::to_le_bytes).as_flattened());
        put_text(packet, &self.listens_at, NAME_ROOM);
    }

    fn take(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self {
            rank: fields.u32()?,
            world_size: fields.u32()?,
            token: match (fields.u32()?, fields.array()?) {
                (0, _) => None,
                (1, token) => Some(token),
                _ => return None,
            },
            job: fields.text(JOB_ROOM)?.to_vec(),
            join: [fields.u64()?, fields.u64()?],
            listens_at: fields.text(NAME_ROOM)?.to_vec(),
        })
    }

    /// Makes a packet of a hello or an answer.
    pub(super) fn packet(&self, kind: PacketKind) -> Vec<u8> {
        let mut packet = head(kind);
        self.append(&mut packet);
        packet
    }

    /// Reads the body of a hello or an answer.
    pub(super) fn read(mut fields: Fields<'_>) -> Option<Self> {
        let hello = Self::take(&mut fields)?;
        fields.end(hello)
    }

    /// Makes the packet by which rank 0 tells the names of all ranks.
    pub(super) fn welcome(&self, names: &[SocketName]) -> Vec<u8> {
        let mut packet = self.packet(PacketKind::Welcome);
        names.iter().for_each(|name| put_text(&mut packet, name, NAME_ROOM));
        packet
    }

    /// Reads the body of a welcome: the words of rank 0 about itself, and one name per rank.
    pub(super) fn read_welcome(mut fields: Fields<'_>) -> Option<(Self, Vec<SocketName>)> {
        let hello = Self::take(&mut fields)?;
        if hello.world_size > MAX_RUNNING_RANKS {
            return None;
        }
        let mut name = |_| fields.text(NAME_ROOM).map(<[u8]>::to_vec);
        let names = (0..hello.world_size).map(&mut name).collect::<Option<_>>()?;
        fields.end((hello, names))
    }
}

impl RefusalBody {
    /// Makes the packet.
    pub(super) fn packet(&self) -> Vec<u8> {
        let mut packet = head(PacketKind::Refusal);
        packet.extend(self.code.to_le_bytes());
        packet.extend(self.rank.to_le_bytes());
        packet.extend(self.numbers.map(u64::to_le_bytes).as_flattened());
        let mut set = [0_u8; RANK_SET_BYTES];
        self.ranks.iter().for_each(|&rank| set[rank as usize / 8] |= 1 << (rank % 8));
        packet.extend(set);
        packet
    }

    /// Reads the body.
    pub(super) fn read(mut fields: Fields<'_>) -> Option<Self> {
        let (code, rank, numbers) = (fields.u32()?, fields.u32()?, [fields.u64()?, fields.u64()?]);
        let set: [u8; RANK_SET_BYTES] = fields.array()?;
        let is_in_set = |rank: &u32| set[*rank as usize / 8] & 1 << (rank % 8) != 0;
        let ranks = (0..MAX_RUNNING_RANKS).filter(is_in_set).collect();
        fields.end(Self { code, rank, numbers, ranks })
    }
}

impl MessageBody {
    /// Makes the packet of a message.
    pub(super) fn packet(key: [u64; 3], words: &[u64], descriptors: usize) -> Vec<u8> {
        let mut packet = head(PacketKind::Message);
        packet.extend(key.map(u64::to_le_bytes).as_flattened());
        packet.extend((words.len() as u32).to_le_bytes());
        packet.extend((descriptors as u32).to_le_bytes());
        words.iter().for_each(|word| packet.extend(word.to_le_bytes()));
        packet
    }

    /// Reads the body.
    pub(super) fn read(mut fields: Fields<'_>) -> Option<Self> {
        let key = [fields.u64()?, fields.u64()?, fields.u64()?];
        let (count, descriptors) = (fields.u32()? as usize, fields.u32()? as usize);
        if count > MOST_WORDS {
            return None;
        }
        let words = (0..count).map(|_| fields.u64()).collect::<Option<_>>()?;
        fields.end(Self { key, words, descriptors })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hello() -> Hello {
        let (job, listens_at) = (b"train 7".to_vec(), b"0001f".to_vec());
        Hello { rank: 3, world_size: 8, token: Some([7; 32]), job, join: [1, u64::MAX], listens_at }
    }

    fn body(packet: &[u8], kind: PacketKind) -> Fields<'_> {
        let (found, fields) = open(packet).ok().unwrap();
        assert_eq!(found, kind);
        fields
    }

    #[test]
    fn packets_are_read_as_they_were_written() {
        for hello in [hello(), Hello { token: None, listens_at: Vec::new(), ..hello() }] {
            let packet = hello.packet(PacketKind::Hello);
            assert_eq!(packet.len(), LONGEST_HELLO);
            assert!(Hello::read(body(&packet, PacketKind::Hello)) == Some(hello.clone()));
            let names: Vec<SocketName> = (0..8).map(|rank| vec![b'a'; rank]).collect();
            let packet = hello.welcome(&names);
            assert!(Hello::read_welcome(body(&packet, PacketKind::Welcome)) == Some((hello, names)));
        }
        let refusal = RefusalBody { code: 4, rank: 1023, numbers: [5, u64::MAX], ranks: vec![0, 7, 8, 1023] };
        assert_eq!(RefusalBody::read(body(&refusal.packet(), PacketKind::Refusal)), Some(refusal));
        let packet = MessageBody::packet([1, 2, u64::MAX], &[9; MOST_WORDS], 8);
        assert_eq!(packet.len(), LONGEST_MESSAGE);
        let message = MessageBody { key: [1, 2, u64::MAX], words: vec![9; MOST_WORDS], descriptors: 8 };
        assert_eq!(MessageBody::read(body(&packet, PacketKind::Message)), Some(message));
    }

    #[test]
    fn a_packet_of_another_length_is_none() {
        let hello = hello().packet(PacketKind::Hello);
        for length in 0..hello.len() {
            let is_read = open(&hello[..length]).is_ok_and(|(_, fields)| Hello::read(fields).is_some());
            assert!(!is_read, "{length} bytes of a hello");
        }
        let long = [&hello[..], &[0]].concat();
        assert!(Hello::read(body(&long, PacketKind::Hello)).is_none(), "a byte behind a hello");
    }

    #[test]
    fn another_version_or_layout_is_named_and_other_magic_is_foreign() {
        let mut packet = head(PacketKind::Go);
        packet[16..21].copy_from_slice(b"9.8.7");
        packet.truncate(HEAD_BYTES);
        assert_eq!(open(&packet).err(), Some(Unreadable::OtherVersion("9.8.7".into())));
        let mut packet = head(PacketKind::Go);
        packet[8] ^= 2;
        assert_eq!(open(&packet).err(), Some(Unreadable::OtherVersion(VERSION.into())));
        packet[0] ^= 1;
        assert_eq!(open(&packet).err(), Some(Unreadable::Foreign));
    }

    proptest! {
        /// Every reader gets every packet that differs from a right one in some bytes and in its length.
        #[test]
        fn damaged_packets_are_read_or_refused(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            length in any::<prop::sample::Index>(),
            kind in 0_usize..4,
        ) {
            let refusal = RefusalBody { code: 1, rank: 0, numbers: [0, 0], ranks: vec![1] };
            let mut packet = match kind {
                0 => hello().packet(PacketKind::Hello),
                1 => hello().welcome(&vec![b"x".to_vec(); 8]),
                2 => refusal.packet(),
                _ => MessageBody::packet([1, 2, 3], &[4, 5], 0),
            };
            for (place, byte) in changes {
                let place = place.index(packet.len());
                packet[place] = byte;
            }
            packet.truncate(length.index(packet.len() * 2) + 1);
            let body = || open(&packet).ok().map(|(_, fields)| fields);
            let _ = (body().and_then(Hello::read), body().and_then(RefusalBody::read));
            let welcome = body().and_then(Hello::read_welcome);
            prop_assert!(welcome.is_none_or(|(hello, names)| names.len() == hello.world_size as usize));
            let message = body().and_then(MessageBody::read);
            prop_assert!(message.is_none_or(|message| message.words.len() <= MOST_WORDS));
        }
    }
}
