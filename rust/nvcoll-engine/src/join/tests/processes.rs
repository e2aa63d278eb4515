//! Ranks that are processes.

use std::io::Write;
use std::os::fd::AsFd;

use super::*;

const RANK: &str = "NVCOLL_TEST_RANK";
const JOB: &str = "NVCOLL_TEST_JOB";
const TEST: &str = "ranks_that_are_processes_pass_descriptors_and_see_who_was_killed";

fn settings_of_process(rank: u32, job: &str) -> JobSettings {
    let deadline = Deadline::after(Some(WATCHDOG_SECONDS));
    JobSettings { rank, world_size: 3, job: job.into(), token: Some([3; 32]), deadline }
}

/// A rank that writes its process into a file of rank 0. Rank 1 returns when rank 2 has left, and rank 2 waits to be killed.
fn program_of(rank: u32) {
    let mesh = join(&settings_of_process(rank, &env::var(JOB).unwrap())).unwrap();
    let mut message = mesh.receive(0, [1, 2, 3], watchdog(), &mut || false).unwrap();
    let mut file = File::from(message.descriptors.pop().unwrap());
    file.write_all(&id().to_le_bytes()).unwrap();
    send(&mesh, 0, 4, &[id().into(), mesh.process_of(0).into()]).unwrap();
    let other = 3 - rank;
    assert!(matches!(receive(&mesh, other, 5), Err(Error::Left { .. })));
    assert_eq!(rank, 1, "rank 1 left first");
}

#[test]
fn ranks_that_are_processes_pass_descriptors_and_see_who_was_killed() {
    if let Ok(rank) = env::var(RANK) {
        return program_of(rank.parse().unwrap());
    }
    let job = format!("processes {}", id());
    let start = |rank: u32| command(module_path!(), TEST).env(RANK, rank.to_string()).env(JOB, &job).spawn().unwrap();
    let mut children = [start(1), start(2)];
    let mesh = join(&settings_of_process(0, &job)).unwrap();
    for (rank, child) in (1..).zip(&children) {
        let (mut reader, writer) = std::io::pipe().unwrap();
        mesh.send(rank, [1, 2, 3], &[], &[writer.as_fd()], watchdog(), &mut || false).unwrap();
        let mut bytes = [0; 4];
        std::io::Read::read_exact(&mut reader, &mut bytes).unwrap();
        assert_eq!(u32::from_le_bytes(bytes), child.id());
        assert_eq!(receive(&mesh, rank, 4).unwrap(), [u64::from(child.id()), id().into()]);
        assert_eq!(mesh.process_of(rank), child.id());
    }
    assert!(!mesh.has_left(2));
    children[1].kill().unwrap();
    assert!(!wait_for(&mut children[1]), "it was killed");
    assert!(mesh.has_left(2));
    assert!(wait_for(&mut children[0]), "rank 1 saw rank 2 leave");
    assert!(matches!(receive(&mesh, 1, 9), Err(Error::Left { rank: 1, .. })));
}
