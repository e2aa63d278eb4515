//! Islands: links and paths of which nothing outside shares a link.
//!
//! An island is found by walking from a link over its paths to their links, and kept while it stays closed. It may
//! fall apart while it is kept: that changes no rate, only how much is looked at, so it is looked for anew after as
//! many fillings as four times its paths. A small one is not kept: finding it is as cheap as keeping it.

use super::rounds::Rounds;
use super::{Bundle, Fluid, NONE};
use crate::units::Ps;

/// Islands of fewer paths are not kept. Chosen: below, they come and go with each transfer.
pub(super) const LEAST_KEPT: usize = 8;

/// Links, and the paths with transfers on them.
#[derive(Default)]
pub(super) struct Island {
    /// By number, which is the order in which equals are served.
    pub(super) links: Vec<u32>,
    pub(super) paths: Vec<u32>,
    /// How many of the paths something else than links may hold.
    pub(super) held: u32,
    /// The links on which transfers have begun or ended since the last filling.
    pub(super) altered: Vec<u32>,
    /// Whether the rounds of the last filling are kept.
    pub(super) keeps: bool,
    /// The earliest end for which a filling has put an event on the agenda.
    pub(super) next_end: Ps,
    pub(super) rounds: Rounds,
    /// How many fillings it is kept for.
    lasts: usize,
    /// The last settling that looked at it.
    settled: u32,
}

impl Island {
    fn add(&mut self, path: u32, bundle: &mut Bundle) {
        bundle.place = self.paths.len() as u32;
        self.paths.push(path);
        self.held += u32::from(bundle.is_held);
    }
}

impl Fluid<'_> {
    /// A path has its first transfer: its links know of it, and their island if they are all in one. Otherwise the
    /// islands that it would join are given up.
    pub(super) fn activate(&mut self, path: u32) {
        let crossings = self.paths.shared(path);
        let island = crossings.first().map_or(NONE, |first| self.links[first.link as usize].island);
        if crossings.iter().any(|crossing| self.links[crossing.link as usize].island != island) {
            for crossing in crossings {
                self.give_up(self.links[crossing.link as usize].island);
            }
        } else if island != NONE {
            self.islands[island as usize].add(path, &mut self.bundles[path as usize]);
        }
        self.serial += 1;
        self.bundles[path as usize].served = self.serial;
        for (nth, crossing) in crossings.iter().enumerate() {
            let paths = &mut self.links[crossing.link as usize].paths;
            self.places[path as usize * self.most_links + nth] = paths.len() as u32;
            paths.push((path, nth as u32));
        }
    }

    /// A path has no transfer any more.
    pub(super) fn deactivate(&mut self, path: u32) {
        let crossings = self.paths.shared(path);
        let island = self.island_of(path);
        if let Some(island) = self.islands.get_mut(island as usize) {
            let Bundle { place, is_held, .. } = self.bundles[path as usize];
            island.held -= u32::from(is_held);
            island.paths.swap_remove(place as usize);
            if let Some(&moved) = island.paths.get(place as usize) {
                self.bundles[moved as usize].place = place;
            }
        }
        for (nth, crossing) in crossings.iter().enumerate() {
            let place = self.places[path as usize * self.most_links + nth];
            let paths = &mut self.links[crossing.link as usize].paths;
            paths.swap_remove(place as usize);
            if let Some(&(moved, nth)) = paths.get(place as usize) {
                self.places[moved as usize * self.most_links + nth as usize] = place;
            }
        }
    }

    /// Returns the island of a path with transfers, if it has one.
    pub(super) fn island_of(&self, path: u32) -> u32 {
        self.paths.shared(path).first().map_or(NONE, |first| self.links[first.link as usize].island)
    }

    /// Has an island looked at again when links are settled.
    pub(super) fn look_at(&mut self, island: u32) {
        let Some(island) = self.islands.get(island as usize) else { return };
        if let Some(&path) = island.paths.first() {
            self.change(self.paths.shared(path)[0].link);
        }
    }

    /// Returns the island of a link with transfers, and whether this settling has not looked at it yet. One that is
    /// small then is exactly what is joined to the link.
    pub(super) fn island_to_settle(&mut self, link: u32) -> (u32, bool) {
        let mut number = self.links[link as usize].island;
        if let Some(island) = self.islands.get_mut(number as usize) {
            if island.settled == self.settling {
                return (number, false);
            }
            if island.lasts == 0 || island.paths.len() < self.least_kept {
                self.give_up(number);
                number = NONE;
            } else {
                island.lasts -= 1;
            }
        }
        if number == NONE {
            number = self.find_island(link);
        }
        self.islands[number as usize].settled = self.settling;
        (number, true)
    }

    /// Forgets an island that is small and has just been looked at: a change will find it again.
    pub(super) fn release_small(&mut self, island: u32) {
        if self.islands.get(island as usize).is_some_and(|island| island.paths.len() < self.least_kept) {
            self.release(island);
        }
    }

    /// Forgets an island, and has all that was in it looked at again: parts of it may have no event on the agenda.
    fn give_up(&mut self, island: u32) {
        if island == NONE {
            return;
        }
        self.release(island);
        for at in 0..self.islands[island as usize].links.len() {
            let link = self.islands[island as usize].links[at];
            if !self.links[link as usize].paths.is_empty() {
                self.change(link);
            }
        }
    }

    fn release(&mut self, island: u32) {
        for &link in &self.islands[island as usize].links {
            self.links[link as usize].island = NONE;
        }
        self.free.push(island);
    }

    /// Finds the links and paths that are joined to a link, which is in no island, by links that they share.
    fn find_island(&mut self, link: u32) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.islands.push(Island::default());
            self.islands.len() as u32 - 1
        });
        let island = &mut self.islands[number as usize];
        island.links.clear();
        island.paths.clear();
        island.altered.clear();
        (island.held, island.keeps, island.next_end) = (0, false, 0);
        island.links.push(link);
        self.links[link as usize].island = number;
        let mut turn = 0;
        while let Some(&link) = island.links.get(turn) {
            turn += 1;
            for at in 0..self.links[link as usize].paths.len() {
                let (path, _) = self.links[link as usize].paths[at];
                let bundle = &mut self.bundles[path as usize];
                if island.paths.get(bundle.place as usize) == Some(&path) {
                    continue;
                }
                island.add(path, bundle);
                for crossing in self.paths.shared(path) {
                    let shared = &mut self.links[crossing.link as usize];
                    if shared.island != number {
                        shared.island = number;
                        island.links.push(crossing.link);
                    }
                }
            }
        }
        island.links.sort_unstable();
        for (place, &link) in island.links.iter().enumerate() {
            self.links[link as usize].is_altered = false;
            self.levels[link as usize].place = place as u32;
        }
        island.lasts = 4 * island.paths.len();
        number
    }

    /// Adds the transfers of an island that end now.
    pub(super) fn add_ended(&self, island: u32, now: Ps, ended: &mut Vec<u32>) {
        let island = &self.islands[island as usize];
        let looked_at = if island.next_end <= now { &island.paths[..] } else { &[] };
        for &path in looked_at {
            self.add_ended_on(path, now, ended);
        }
    }
}
