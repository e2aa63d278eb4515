//! The part of rank 0 in a join: it waits for all ranks under the name of the job, tells each the names of all, and lets them go when all
//! are connected.
//!
//! Until then it hears every rank. A rank that leaves or gives up ends the join for all, and rank 0 tells them why. It stops to listen
//! before it tells the first name, so that a rank that is through cannot find this join again when it joins anew.

use std::io;
use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::Duration;

use crate::join::failure::JoinFailure;
use crate::join::handshake::{Caller, Handshakes};
use crate::join::patience::{until_next_look, GiveUp, JoinWait};
use crate::join::settings::JobSettings;
use crate::join::socket::{wait, Awaited, PacketSocket, Receipt, Sending};
use crate::join::wire::{head, open, PacketKind, RefusalBody, SocketName, HEAD_BYTES, LONGEST_HELLO};

/// The wait until a name is tried again that nobody listens under. Chosen: it is free when a copy of a closed socket is closed.
const NAME_RETRY: Duration = Duration::from_millis(1);

const NAME_HELD: &str = "rank 0 cannot listen under the name of the job, which a socket has that does not listen";

/// A rank that has come.
struct Arrived {
    socket: PacketSocket,
    process: u32,
    listens_at: SocketName,
    is_ready: bool,
}

struct RankZero<'a> {
    settings: &'a JobSettings,
    /// `None` once all ranks have come.
    handshakes: Option<Handshakes<'a>>,
    /// One place per rank; that of rank 0 stays empty.
    arrived: Vec<Option<Arrived>>,
    join: [u64; 2],
}

/// Gathers all ranks; returns for each other rank its socket and its process.
pub(super) fn gather(
    settings: &JobSettings,
    user: u32,
    join: [u64; 2],
    patience: &mut JoinWait<'_>,
) -> Result<Vec<Option<(PacketSocket, u32)>>, JoinFailure> {
    let listener = listen(settings, user, patience)?;
    let handshakes = Some(Handshakes::new(settings, user, listener));
    let arrived = (0..settings.world_size).map(|_| None).collect();
    let mut rank_zero = RankZero { settings, handshakes, arrived, join };
    if let Err(failure) = rank_zero.join(patience) {
        let packet = failure.packet(0);
        rank_zero.others().for_each(|(_, one)| _ = one.socket.send(&packet, &[]));
        return Err(failure);
    }
    Ok(rank_zero.arrived.into_iter().map(|place| place.map(|one| (one.socket, one.process))).collect())
}

/// Listens under the name of the job.
fn listen(settings: &JobSettings, user: u32, patience: &mut JoinWait<'_>) -> Result<PacketSocket, JoinFailure> {
    let name = settings.rendezvous(user);
    loop {
        match PacketSocket::listen(Some(&name)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => (),
            listener => {
                let what = "rank 0 cannot listen for the other ranks on a unix socket";
                return listener.map_err(|error| JoinFailure::of_system(settings, what, &error));
            }
        }
        let holder = PacketSocket::connect(&name).and_then(|socket| socket.peer());
        if let Ok(holder) = holder {
            return Err(JoinFailure::NameTaken(holder));
        }
        if let Some(reason) = patience.give_up(settings, || NAME_HELD.into()) {
            return Err(match reason {
                GiveUp::Interrupted => JoinFailure::Interrupted { rank: 0 },
                GiveUp::Late => JoinFailure::Failed { rank: 0, number: libc::EADDRINUSE, what: NAME_HELD.into() },
            });
        }
        sleep(NAME_RETRY);
    }
}

impl RankZero<'_> {
    fn others(&self) -> impl Iterator<Item = (u32, &Arrived)> {
        (0..).zip(&self.arrived).filter_map(|(rank, place)| Some((rank, place.as_ref()?)))
    }

    /// Returns the ranks that have not come.
    fn absent(&self) -> Vec<u32> {
        (1..self.settings.world_size).filter(|&rank| self.arrived[rank as usize].is_none()).collect()
    }

    fn join(&mut self, patience: &mut JoinWait<'_>) -> Result<(), JoinFailure> {
        while !self.absent().is_empty() {
            self.hear_all(patience)?;
        }
        self.handshakes = None;
        self.welcome_all()?;
        while self.others().any(|(_, one)| !one.is_ready) {
            self.hear_all(patience)?;
        }
        // A rank that has left since then has joined: its peers see its end.
        self.others().for_each(|(_, one)| _ = one.socket.send(&head(PacketKind::Go), &[]));
        Ok(())
    }

    fn welcome_all(&self) -> Result<(), JoinFailure> {
        let name = |place: &Option<Arrived>| place.as_ref().map_or(Vec::new(), |one| one.listens_at.clone());
        let names: Vec<SocketName> = self.arrived.iter().map(name).collect();
        let packet = self.settings.hello(self.join, Vec::new()).welcome(&names);
        for (rank, one) in self.others() {
            match one.socket.send(&packet, &[]) {
                Ok(Sending::Done) => (),
                Ok(_) => return Err(JoinFailure::Left { rank }),
                Err(error) => {
                    let what = "rank 0 cannot send the names of all ranks";
                    return Err(JoinFailure::of_system(self.settings, what, &error));
                }
            }
        }
        Ok(())
    }

    /// Waits until somebody speaks, comes or leaves, and hears those who do.
    fn hear_all(&mut self, patience: &mut JoinWait<'_>) -> Result<(), JoinFailure> {
        match patience.give_up(self.settings, || self.late(0, Vec::new(), 0.0).missing()) {
            Some(GiveUp::Interrupted) => return Err(JoinFailure::Interrupted { rank: 0 }),
            Some(GiveUp::Late) => return Err(self.late(0, Vec::new(), patience.deadline().seconds())),
            None => (),
        }
        let (ranks, sockets): (Vec<u32>, Vec<_>) =
            self.others().map(|(rank, one)| (rank, (one.socket.as_fd(), Awaited::Incoming))).unzip();
        let strangers = self.handshakes.iter().flat_map(Handshakes::sockets).map(|socket| (socket, Awaited::Incoming));
        let sockets: Vec<_> = sockets.into_iter().chain(strangers).collect();
        let ready = wait(&sockets, until_next_look(patience.deadline()))
            .map_err(|error| JoinFailure::of_system(self.settings, "rank 0 cannot wait for the other ranks", &error))?;
        for (&rank, _) in ranks.iter().zip(&ready).filter(|(_, is_ready)| **is_ready) {
            self.hear(rank)?;
        }
        if ready[ranks.len()..].contains(&true) {
            self.receive_callers()?;
        }
        Ok(())
    }

    /// Reads a packet of a rank that has come.
    fn hear(&mut self, rank: u32) -> Result<(), JoinFailure> {
        let Some(one) = &mut self.arrived[rank as usize] else { return Ok(()) };
        let mut room = [0; LONGEST_HELLO];
        let bytes = match one.socket.receive(&mut room) {
            Ok(Receipt::Packet(bytes)) => bytes,
            Ok(Receipt::Nothing) => return Ok(()),
            _ => return Err(JoinFailure::Left { rank }),
        };
        match open(&room[..bytes]) {
            Ok((PacketKind::Ready, _)) if bytes == HEAD_BYTES && self.handshakes.is_none() => one.is_ready = true,
            Ok((PacketKind::Refusal, fields)) => {
                return Err(match RefusalBody::read(fields).and_then(JoinFailure::read) {
                    Some(JoinFailure::NotConnected { rank, ranks, seconds }) => self.late(rank, ranks, seconds),
                    Some(failure) => failure,
                    None => JoinFailure::Left { rank },
                });
            }
            _ => return Err(JoinFailure::Left { rank }),
        }
        Ok(())
    }

    /// Returns the failure at the deadline of `rank`, which has no connection with `unconnected`.
    fn late(&self, rank: u32, unconnected: Vec<u32>, seconds: f64) -> JoinFailure {
        let (absent, note) = (self.absent(), self.handshakes.as_ref().map_or(String::new(), Handshakes::note));
        if !absent.is_empty() {
            return JoinFailure::NotCome { ranks: absent, seconds, note };
        }
        let unready = self.others().filter(|(other, one)| !one.is_ready && *other != rank).map(|(other, _)| other);
        let ranks = if unconnected.is_empty() { unready.collect() } else { unconnected };
        JoinFailure::NotConnected { rank, ranks, seconds }
    }

    fn receive_callers(&mut self) -> Result<(), JoinFailure> {
        let Some(handshakes) = &mut self.handshakes else { return Ok(()) };
        let callers = handshakes.admit().map_err(|error| {
            let what = format!(
                "rank 0 cannot accept a rank: it needs {} descriptors besides those that it has open; raise the limit of \
                 open files (`ulimit -n`)",
                self.settings.world_size
            );
            JoinFailure::of_system(self.settings, &what, &error)
        })?;
        callers.into_iter().try_for_each(|caller| self.add(caller))
    }

    fn add(&mut self, Caller { socket, process, hello }: Caller) -> Result<(), JoinFailure> {
        let (rank, expected) = (hello.rank, self.settings.world_size);
        let failure = match self.arrived.get(rank as usize) {
            _ if hello.world_size != expected => JoinFailure::WorldSize { rank, found: hello.world_size, expected },
            Some(Some(one)) => JoinFailure::Twice { rank, processes: [one.process, process] },
            Some(None) if rank > 0 && hello.join == [0, 0] => {
                self.arrived[rank as usize] =
                    Some(Arrived { socket, process, listens_at: hello.listens_at, is_ready: false });
                return Ok(());
            }
            // No rank says this.
            _ => return Ok(()),
        };
        _ = socket.send(&failure.packet(0), &[]);
        Err(failure)
    }
}
