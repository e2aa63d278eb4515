//! Joins in which all ranks come.

use super::*;

#[test]
fn all_ranks_are_connected_with_each_other() {
    for world_size in [1, 2, 3, 8] {
        let meshes = job("connected", world_size);
        for (rank, mesh) in (0..).zip(&meshes) {
            assert_eq!((mesh.rank(), mesh.world_size()), (rank, world_size));
            assert!((0..world_size).all(|peer| mesh.process_of(peer) == id()));
        }
        check_that_all_can_talk(&meshes);
    }
}

#[test]
fn sixty_four_ranks_join() {
    alone(module_path!(), "sixty_four_ranks_join", || {
        limit_descriptors(1 << 14);
        check_that_all_can_talk(&job("sixty-four", 64));
    });
}

#[test]
fn one_rank_needs_no_socket() {
    alone(module_path!(), "one_rank_needs_no_socket", || {
        let before = open_descriptors();
        let mesh = join(&settings("one", 0, 1)).unwrap();
        assert_eq!((open_descriptors(), mesh.world_size()), (before, 1));
        assert!(!mesh.has_left(0));
    });
}

#[test]
fn a_job_joins_again_at_once_under_the_same_name() {
    let ranks: Vec<_> = (0..4).map(|rank| settings("again", rank, 4)).collect();
    thread::scope(|scope| {
        for settings in &ranks {
            scope.spawn(move || {
                for round in 0..100 {
                    let mesh = join(settings).unwrap_or_else(|error| panic!("round {round}: {error}"));
                    let peer = (settings.rank + round) % 4;
                    if peer != settings.rank {
                        _ = send(&mesh, peer, 1, &[]);
                    }
                }
            });
        }
    });
}

#[test]
fn a_name_is_free_while_a_child_has_a_copy_of_the_socket() {
    let (name, settings) = (settings("copy", 0, 2), settings("copy", 1, 2));
    let listener = socket::PacketSocket::listen(Some(&name.rendezvous(socket::own_user()))).unwrap();
    let copy = std::os::fd::AsFd::as_fd(&listener).try_clone_to_owned().unwrap();
    drop(handshake::Handshakes::new(&name, socket::own_user(), listener));
    thread::scope(|scope| {
        let ranks = [scope.spawn(|| join(&name)), scope.spawn(|| join(&settings))];
        thread::sleep(Duration::from_millis(20));
        drop(copy);
        ranks.into_iter().for_each(|rank| drop(rank.join().unwrap().unwrap()));
    });
}

#[test]
fn joins_leave_no_descriptor() {
    alone(module_path!(), "joins_leave_no_descriptor", || {
        let before = open_descriptors();
        for round in 0..20 {
            let meshes = job("leak", 5);
            let [first, second, ..] = &meshes[..] else { panic!("five ranks") };
            let passed = descriptor();
            first.send(1, [round, 0, 0], &[], &[std::os::fd::AsFd::as_fd(&passed)], watchdog(), &mut || false).unwrap();
            if round % 2 == 0 {
                second.receive(0, [round, 0, 0], watchdog(), &mut || false).unwrap();
            }
            assert!(open_descriptors() > before + 20);
            drop((meshes, passed));
            assert_eq!(open_descriptors(), before, "round {round}");
        }
    });
}

#[test]
fn descriptors_of_a_mesh_are_closed_on_exec() {
    alone(module_path!(), "descriptors_of_a_mesh_are_closed_on_exec", || {
        let before = Command::new("ls").arg("/proc/self/fd").output().unwrap().stdout;
        let meshes = job("exec", 3);
        let passed = descriptor();
        meshes[0].send(1, [1, 0, 0], &[], &[std::os::fd::AsFd::as_fd(&passed)], watchdog(), &mut || false).unwrap();
        let message = meshes[1].receive(0, [1, 0, 0], watchdog(), &mut || false).unwrap();
        assert_eq!(message.descriptors.len(), 1);
        assert_eq!(Command::new("ls").arg("/proc/self/fd").output().unwrap().stdout, before);
    });
}

extern "C" fn ignore(_: libc::c_int) {}

#[test]
fn signals_do_not_disturb_a_join() {
    alone(module_path!(), "signals_do_not_disturb_a_join", || {
        let every = libc::timeval { tv_sec: 0, tv_usec: 200 };
        let timer = libc::itimerval { it_interval: every, it_value: every };
        // SAFETY: the handler does nothing. The action and the timer live through the calls.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as usize;
            assert_eq!(libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()), 0);
            assert_eq!(libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()), 0);
        }
        (0..20).for_each(|_| check_that_all_can_talk(&job("signals", 6)));
    });
}
