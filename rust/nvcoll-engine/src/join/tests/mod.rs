//! Tests of the mesh. Ranks are threads, except where the test says processes. Deadlines of 30 seconds are watchdogs.

mod failures;
mod hostile;
mod joins;
mod messages;

use std::env;
use std::fs::{read_dir, File};
use std::os::fd::OwnedFd;
use std::process::{id, Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::*;

const WATCHDOG_SECONDS: f64 = 30.0;
const NAMED: &str = "NVCOLL_TEST_ALONE";

/// Returns the settings of a rank of a job whose name no other process uses.
fn settings(job: &str, rank: u32, world_size: u32) -> JobSettings {
    let deadline = Deadline::after(Some(WATCHDOG_SECONDS));
    JobSettings { rank, world_size, job: format!("{job} {}", id()), token: None, deadline }
}

fn within(seconds: f64, settings: JobSettings) -> JobSettings {
    JobSettings { deadline: Deadline::after(Some(seconds)), ..settings }
}

fn join(settings: &JobSettings) -> Result<Mesh> {
    Mesh::join(settings, &mut || false)
}

/// Joins ranks, each in a thread of its own.
fn join_all(all: &[JobSettings]) -> Vec<Result<Mesh>> {
    thread::scope(|scope| {
        let threads: Vec<_> = all.iter().map(|settings| scope.spawn(|| join(settings))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Returns the meshes of a job in which nothing goes wrong.
fn job(name: &str, world_size: u32) -> Vec<Mesh> {
    let all: Vec<_> = (0..world_size).map(|rank| settings(name, rank, world_size)).collect();
    join_all(&all).into_iter().map(|mesh| mesh.unwrap()).collect()
}

fn watchdog() -> Deadline {
    Deadline::after(Some(WATCHDOG_SECONDS))
}

fn send(mesh: &Mesh, peer: u32, key: u64, words: &[u64]) -> Result<()> {
    mesh.send(peer, [key, 0, 0], words, &[], watchdog(), &mut || false)
}

fn receive(mesh: &Mesh, peer: u32, key: u64) -> Result<Vec<u64>> {
    mesh.receive(peer, [key, 0, 0], watchdog(), &mut || false).map(|message| message.words)
}

/// Checks that each two ranks of a job can send each other messages.
fn check_that_all_can_talk(meshes: &[Mesh]) {
    let pairs = || meshes.iter().flat_map(|one| meshes.iter().map(move |other| (one, other)));
    let pairs = || pairs().filter(|(one, other)| one.rank() != other.rank());
    for (one, other) in pairs() {
        send(one, other.rank(), 7, &[one.rank().into(), other.rank().into()]).unwrap();
    }
    for (one, other) in pairs() {
        let words = receive(other, one.rank(), 7).unwrap();
        assert_eq!(words, [u64::from(one.rank()), other.rank().into()]);
        assert!(!one.has_left(other.rank()));
    }
}

fn open_descriptors() -> usize {
    // One of them reads the folder.
    read_dir("/proc/self/fd").unwrap().count() - 1
}

fn descriptor() -> OwnedFd {
    File::open("/dev/null").unwrap().into()
}

/// Sets the limit of open files, not above the one that the system allows.
fn limit_descriptors(most: u64) {
    // SAFETY: the calls read and write one limit, which lives through them.
    unsafe {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = most.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
}

/// Waits for a child; ends it after a minute.
fn wait_for(child: &mut Child) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    false
}

/// Returns a command that runs a test of `module` in a process of its own.
fn command(module: &str, test: &str) -> Command {
    let (_, path) = module.split_once("::").unwrap();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([&format!("{path}::{test}"), "--exact", "--nocapture"]).env(NAMED, test);
    command
}

/// Runs the body of a test in a process in which no other test runs: it counts or limits what a process has.
fn alone(module: &str, test: &str, body: impl FnOnce()) {
    if env::var(NAMED).is_ok_and(|named| named == test) {
        return body();
    }
    assert!(wait_for(&mut command(module, test).spawn().unwrap()), "{test} failed in its process");
}
