//! A peer that writes anything into the stream of its messages.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use nvcoll_core::dtype::DType;

use crate::deadline::{Deadline, WaitLimit};
use crate::error::Result;
use crate::join::JobSettings;
use crate::messages::transfer::MessageBuffer;
use crate::processes::ProcessRank;
use crate::ranks::member::Member;
use crate::run::wait::now;

/// Numbers that look random (Vigna, splitmix64, 2015).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn buffer(bytes: &mut [u8]) -> MessageBuffer {
    MessageBuffer { address: bytes.as_mut_ptr(), bytes: bytes.len(), dtype: DType::U8, at_end: None }
}

/// Makes a transfer of rank 1 - `peer` until it succeeds or the deadline passes.
fn transfer(member: &Member, bytes: &mut [u8], peer: u32, deadline: Deadline) -> Result<()> {
    // SAFETY: `finish` returns when nobody touches the bytes any more.
    let begun = unsafe {
        match member.rank() {
            0 => member.send(buffer(bytes), peer, 0),
            _ => member.receive(buffer(bytes), Some(peer), Some(0)),
        }
    };
    now(member.finish(&[begun?], &mut WaitLimit::new(deadline, &mut || false)))
}

fn job(name: &str) -> [ProcessRank; 2] {
    let (deadline, job) = (Deadline::after(Some(30.0)), format!("{name} {}", std::process::id()));
    let join = |rank| {
        let settings = JobSettings { rank, world_size: 2, job: job.clone(), token: None, deadline };
        ProcessRank::join(&settings, &mut || false).unwrap()
    };
    scope(|scope| {
        let other = scope.spawn(|| join(1));
        [join(0), other.join().unwrap()]
    })
}

#[test]
fn scribbled_words_of_a_stream_lead_to_no_byte_outside_of_the_arrays_and_end_at_the_deadline() {
    const GUARD: usize = 4096;
    let mut failures = 0;
    for seed in 0..8u64 {
        let ranks = job(&format!("scribbled {seed}"));
        let [sender, receiver] = ranks.each_ref().map(ProcessRank::member);
        let deadline = || Deadline::after(Some(0.5));
        scope(|scope| {
            let other = scope.spawn(|| transfer(receiver, &mut [0; 8], 0, Deadline::after(Some(30.0))));
            transfer(sender, &mut [7; 8], 1, Deadline::after(Some(30.0))).unwrap();
            other.join().unwrap().unwrap();
        });
        let place = receiver.world.lines[0].outbox.read(1);
        let words = receiver.world.addresses.address_of(0, place).unwrap().cast::<AtomicU64>().expose_provenance();
        let (is_over, stored, mut state) = (AtomicBool::new(false), AtomicU64::new(0), seed);
        let sizes: Vec<usize> =
            (0..40).map(|_| (random(&mut state) >> 40 >> (random(&mut state) % 20)) as usize).collect();
        // All sizes once; then again until one of the two notices, or has had its time to.
        let is_noticed = AtomicBool::new(false);
        let transfers = |transfer_of: &dyn Fn(usize) -> Result<()>| {
            for (n, &size) in sizes.iter().cycle().enumerate() {
                let has_time = !is_noticed.load(Ordering::Relaxed) && stored.load(Ordering::Relaxed) < 10_000;
                if n >= sizes.len() && !has_time {
                    break;
                }
                is_noticed.fetch_or(transfer_of(size).is_err(), Ordering::Relaxed);
            }
        };
        scope(|scope| {
            scope.spawn(|| {
                let mut state = seed + 1000;
                while !is_over.load(Ordering::Relaxed) {
                    stored.fetch_add(1, Ordering::Relaxed);
                    let at = random(&mut state) % 1100; // all words of the stream, which are fewer than 9 KiB
                    let value = random(&mut state) >> (random(&mut state) % 64);
                    // SAFETY: the stream begins with more words than that.
                    let word = unsafe { &*std::ptr::with_exposed_provenance::<AtomicU64>(words + 8 * at as usize) };
                    word.store(value, Ordering::Relaxed);
                    sleep(Duration::from_micros(20));
                }
            });
            while stored.load(Ordering::Relaxed) < 200 {
                sleep(Duration::from_micros(100));
            }
            let other = scope.spawn(|| {
                transfers(&|size| {
                    let mut bytes = vec![1u8; GUARD + size + GUARD];
                    let outcome = transfer(receiver, &mut bytes[GUARD..GUARD + size], 0, deadline());
                    let is_intact = |guard: &[u8]| guard.iter().all(|&byte| byte == 1);
                    assert!(is_intact(&bytes[..GUARD]) && is_intact(&bytes[GUARD + size..]), "bytes beside the array");
                    outcome
                });
            });
            transfers(&|size| transfer(sender, &mut vec![9; size], 1, deadline()));
            other.join().unwrap();
            is_over.store(true, Ordering::Relaxed);
        });
        failures += usize::from(is_noticed.into_inner());
    }
    assert!(failures > 4, "{failures} of 8 scribblers were noticed: they missed the stream");
}
