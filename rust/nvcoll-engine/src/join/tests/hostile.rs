//! Strangers of the same user at the socket where rank 0 waits. None of them disturbs a join or leaves a descriptor.

use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::join::socket::{own_user, PacketSocket};
use crate::join::wire::{head, Hello, MessageBody, PacketKind};

/// Numbers that look random and are the same in each run: xorshift.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Returns a packet that no rank of the job sends.
fn hostile_packet(dice: &mut Dice, right: &Hello) -> Vec<u8> {
    let mut packet = right.packet(PacketKind::Hello);
    match dice.below(8) {
        0 => packet.truncate(dice.below(packet.len() - 1) + 1),
        1 => packet.resize(packet.len() + 1 + dice.below(60_000), 0x5a),
        2 => packet[dice.below(8)] ^= 1 << dice.below(8),
        3 => packet = (0..1 + dice.below(500)).map(|_| dice.below(256) as u8).collect(),
        4 => packet = head([PacketKind::Ready, PacketKind::Go, PacketKind::Welcome][dice.below(3)]),
        5 => packet = MessageBody::packet([1, 2, 3], &vec![4; dice.below(65)], dice.below(100)),
        6 => packet = Hello { job: b"another job".to_vec(), ..right.clone() }.packet(PacketKind::Hello),
        // The lengths of the texts of a hello.
        _ => {
            let place = [40 + 44, 40 + 44 + 92 + 16][dice.below(2)];
            packet[place..place + 4].copy_from_slice(&(200 + dice.below(1 << 30) as u32).to_le_bytes());
        }
    }
    packet
}

/// Sends hostile packets to rank 0 until the test ends it; returns their number. Some connections stay and say nothing.
fn attack(name: &[u8], right: &Hello, seed: u64, is_over: &AtomicBool, sent: &AtomicU32) {
    let (mut dice, mut silent, file) = (Dice(seed), Vec::new(), descriptor());
    while !is_over.load(Ordering::Relaxed) {
        let Ok(socket) = PacketSocket::connect(name) else {
            thread::yield_now();
            continue;
        };
        for _ in 0..dice.below(4) {
            let descriptors = vec![file.as_fd(); dice.below(9)];
            let packet = match dice.below(5) {
                0 if !descriptors.is_empty() => right.packet(PacketKind::Hello),
                _ => hostile_packet(&mut dice, right),
            };
            _ = socket.send(&packet, &descriptors);
            // Relaxed: a count, and nothing is read by it.
            sent.fetch_add(1, Ordering::Relaxed);
        }
        silent.push(socket);
        if silent.len() > 100 {
            silent.drain(..50 + dice.below(50));
        }
    }
}

#[test]
fn thousands_of_hostile_packets_do_not_disturb_a_join() {
    alone(module_path!(), "thousands_of_hostile_packets_do_not_disturb_a_join", || {
        let before = open_descriptors();
        let ranks: Vec<_> = (0..4).map(|rank| settings("hostile", rank, 4)).collect();
        let (name, right) = (ranks[0].rendezvous(own_user()), ranks[2].hello([0, 0], Vec::new()));
        let (is_over, sent) = (AtomicBool::new(false), AtomicU32::new(0));
        thread::scope(|scope| {
            for seed in 1..=3 {
                let (name, right, is_over, sent) = (&name, &right, &is_over, &sent);
                scope.spawn(move || attack(name, right, seed, is_over, sent));
            }
            let early: Vec<_> = ranks[..3].iter().map(|settings| scope.spawn(|| join(settings))).collect();
            let end = Instant::now() + Duration::from_secs(20);
            while sent.load(Ordering::Relaxed) < 5000 && Instant::now() < end {
                thread::sleep(Duration::from_millis(1));
            }
            let last = join(&ranks[3]);
            // Relaxed: pairs with the load in `attack`, which reads nothing else.
            is_over.store(true, Ordering::Relaxed);
            let mut meshes: Vec<Mesh> = early.into_iter().map(|rank| rank.join().unwrap().unwrap()).collect();
            meshes.push(last.unwrap());
            check_that_all_can_talk(&meshes);
        });
        assert!(sent.load(Ordering::Relaxed) >= 5000, "{sent:?} packets");
        assert_eq!(open_descriptors(), before);
    });
}
