//! One interleaving: who may go next, and what happens when it does.

use nvcoll_core::collective::{Folds, Promise};

use nvcoll_core::schedule::Schedule;

use super::terms::{Term, Terms, GARBAGE};
use super::{tiles_of, Instruction, Interpreter, Wait, TILES};
use crate::random::Random;

/// Where a queue stands.
struct Cursor {
    tile: u32,
    index: usize,
    /// How many of the current step's events have happened, its start being the first.
    events: usize,
    /// By which the order of reads and of writes is rotated.
    rotation: usize,
    /// What has been read, by source.
    read: Vec<Vec<Term>>,
    result: Vec<Term>,
}

#[derive(Clone, Copy)]
enum Actor {
    Enter(usize),
    Queue(usize),
    Leave(usize),
}

pub(super) struct Run<'r, 'a> {
    of: &'r mut Interpreter<'a>,
    random: Random,
    /// One in how many events the favourites change.
    stubbornness: u64,
    actors: Vec<Actor>,
    memory: Vec<Term>,
    cursors: Vec<Cursor>,
    done: Vec<u32>,
    entered: Vec<bool>,
    pub(super) left: Vec<bool>,
    tiles: u32,
    /// For each rank, the ranks whose enter it has waited for.
    seen: Vec<Vec<bool>>,
    /// For each chunk and tile, the result that some rank left with.
    results: Vec<Option<Term>>,
}

impl<'r, 'a> Run<'r, 'a> {
    pub(super) fn new(of: &'r mut Interpreter<'a>, seed: u64) -> Self {
        let n = of.schedule.world_size as usize;
        let mut random = Random::new(seed);
        let ranks = (0..n).flat_map(|rank| [Actor::Enter(rank), Actor::Leave(rank)]);
        let mut actors: Vec<Actor> = ranks.chain((0..of.queues.len()).map(Actor::Queue)).collect();
        for at in (1..actors.len()).rev() {
            actors.swap(at, random.below(at + 1));
        }
        let cursor = || Cursor { tile: 0, index: 0, events: 0, rotation: 0, read: Vec::new(), result: Vec::new() };
        let mut run = Self {
            tiles: tiles_of(of.schedule),
            stubbornness: [1, 4, 32, 256][random.below(4)],
            actors,
            memory: vec![GARBAGE; of.cells.len() * TILES as usize],
            cursors: of.queues.iter().map(|_| cursor()).collect(),
            done: vec![0; of.queues.len()],
            entered: vec![false; n],
            left: vec![false; n],
            seen: (0..n).map(|rank| (0..n).map(|other| rank == other).collect()).collect(),
            results: vec![None; of.known.len()],
            random,
            of,
        };
        (0..n)
            .filter(|&rank| run.of.schedule.early_queue(rank as u32).is_some())
            .for_each(|rank| run.fill_inputs(rank));
        run
    }

    /// Lets the first actor that can do its next event.
    pub(super) fn advance(&mut self) -> Result<(), String> {
        if self.random.below(self.stubbornness as usize) == 0 {
            let (a, b) = (self.random.below(self.actors.len()), self.random.below(self.actors.len()));
            self.actors.swap(0, a);
            let middle = self.actors.len() / 2;
            self.actors.swap(middle, b);
        }
        let Some(&actor) = self.actors.iter().find(|&&actor| self.is_ready(actor)) else {
            return Err("nothing can run, and not every rank has left".into());
        };
        match actor {
            Actor::Enter(rank) => self.enter(rank),
            Actor::Queue(queue) => self.step(queue)?,
            Actor::Leave(rank) => self.leave(rank)?,
        }
        Ok(())
    }

    fn is_ready(&self, actor: Actor) -> bool {
        match actor {
            Actor::Enter(rank) => {
                let mut own = self.of.queues.iter().zip(&self.cursors).filter(|(queue, _)| queue.rank == rank);
                !self.entered[rank] && own.all(|(queue, cursor)| !queue.is_early || cursor.tile == self.tiles)
            }
            Actor::Queue(number) => {
                let (queue, cursor) = (&self.of.queues[number], &self.cursors[number]);
                cursor.tile < self.tiles
                    && self.entered[queue.rank] != queue.is_early
                    && (cursor.events > 0 || self.hold(&queue.steps[cursor.index].waits, cursor.tile))
            }
            Actor::Leave(rank) => {
                let mut own = self.of.queues.iter().zip(&self.cursors).filter(|(queue, _)| queue.rank == rank);
                self.entered[rank]
                    && !self.left[rank]
                    && own.all(|(_, cursor)| cursor.tile == self.tiles)
                    && self.hold(&self.of.leaves[rank], self.tiles - 1)
            }
        }
    }

    fn hold(&self, waits: &[Wait], tile: u32) -> bool {
        waits.iter().all(|wait| match wait.step {
            None => self.entered[wait.rank],
            Some((queue, length, index)) => tile < wait.lag || self.done[queue] > (tile - wait.lag) * length + index,
        })
    }

    fn enter(&mut self, rank: usize) {
        self.entered[rank] = true;
        if self.of.schedule.early_queue(rank as u32).is_none() {
            self.fill_inputs(rank);
        }
    }

    fn fill_inputs(&mut self, rank: usize) {
        for &(chunk, cell) in &self.of.inputs[rank] {
            for tile in 0..TILES {
                self.memory[cell * TILES as usize + tile as usize] = self.of.terms.input(rank as u32, chunk, tile);
            }
        }
    }

    /// Notes the enters that were waited for, then demands that every awaited rank's was.
    ///
    /// A wait that reaches back before the first tile demands nothing. Nothing an engine does can tell: such a wait is over
    /// without a look at the other rank's progress (`by_rank::is_over` compares the tile with the lag first), so neither its
    /// record nor its memory matters yet, and a touch of its memory demands contact by itself, in every tile, below. From
    /// tile `lag` on the wait does look, and the answer is trusted only if the two calls were compared before: then contact
    /// is demanded here. What a mutant gains is an enter that one queue does not wait for because another queue of
    /// its rank has by then, in every interleaving; that serves an engine, which keeps one table of the ranks it has met for
    /// all queues of a rank. A call too short to reach tile `lag` makes no contact, and its leaves must still come after
    /// every enter, which `leave` checks. With four tiles and lags of at most two, each lagging wait is under demand in half
    /// of the tiles.
    fn meet(seen: &mut [bool], waits: &[Wait], tile: u32, who: impl Fn() -> String) -> Result<(), String> {
        waits.iter().filter(|wait| wait.step.is_none()).for_each(|wait| seen[wait.rank] = true);
        match waits.iter().find(|wait| wait.lag <= tile && !seen[wait.rank]) {
            Some(wait) => Err(format!("{} waits for a step of rank {}, whose enter it has not seen", who(), wait.rank)),
            None => Ok(()),
        }
    }

    /// The next event of a queue: start, one read, or one write.
    fn step(&mut self, number: usize) -> Result<(), String> {
        let (queue, cursor) = (&self.of.queues[number], &mut self.cursors[number]);
        let (rank, instruction) = (queue.rank, &queue.steps[cursor.index]);
        let (sources, destinations) = (instruction.src.len(), instruction.dst.len());
        let name = || format!("step {} of queue {number}, rank {rank}", cursor.index);
        cursor.events += 1;
        if cursor.events == 1 {
            Self::meet(&mut self.seen[rank], &instruction.waits, cursor.tile, name)?;
            cursor.rotation = self.random.below(sources * destinations);
            cursor.read.resize(sources, Vec::new());
            return Ok(());
        }
        let event = cursor.events - 2;
        let nth = if event < sources {
            (event + cursor.rotation) % sources
        } else {
            (event + cursor.rotation) % destinations
        };
        let access = if event < sources { &instruction.src[nth] } else { &instruction.dst[nth] };
        if !self.seen[rank][access.rank] {
            return Err(format!("{} touches rank {}, whose enter it has not seen", name(), access.rank));
        }
        if self.left[access.rank] && !access.is_staging {
            return Err(format!("{} touches rank {}, which has left", name(), access.rank));
        }
        let slots = self.of.schedule.slots.max(1);
        let home = if access.is_staging { cursor.tile % slots } else { cursor.tile } as usize;
        let places = access.cells.iter().map(|cell| cell * TILES as usize + home);
        if event < sources {
            cursor.read[nth].clear();
            cursor.read[nth].extend(places.map(|place| self.memory[place]));
            if event + 1 == sources {
                cursor.result = execute(&mut self.of.terms, instruction, &cursor.read);
            }
            return Ok(());
        }
        places.zip(&cursor.result).for_each(|(place, &term)| self.memory[place] = term);
        if event + 1 == sources + destinations {
            self.done[number] += 1;
            cursor.events = 0;
            cursor.index += 1;
            if cursor.index == queue.steps.len() {
                (cursor.index, cursor.tile) = (0, cursor.tile + 1);
            }
        }
        Ok(())
    }

    fn leave(&mut self, rank: usize) -> Result<(), String> {
        Self::meet(&mut self.seen[rank], &self.of.leaves[rank], self.tiles - 1, || {
            format!("the leave of rank {rank}")
        })?;
        if self.of.schedule.collective.synchronises && self.entered.contains(&false) {
            return Err(format!("rank {rank} leaves before everyone has entered"));
        }
        self.left[rank] = true;
        for nth in 0..self.of.outputs[rank].len() {
            let (chunk, cell) = self.of.outputs[rank][nth];
            for tile in 0..self.tiles {
                let found = self.memory[cell * TILES as usize + tile as usize];
                self.check_result(rank, chunk, tile, found)?;
            }
        }
        for (_, &cell) in self.of.cells.iter().filter(|((r, b, _), _)| *r as usize == rank && !b.is_staging()) {
            self.memory[cell * TILES as usize..][..TILES as usize].fill(GARBAGE);
        }
        Ok(())
    }

    fn check_result(&mut self, rank: usize, chunk: u32, tile: u32, found: Term) -> Result<(), String> {
        let at = (chunk * TILES + tile) as usize;
        let Schedule { collective, chunks_per_part, .. } = self.of.schedule;
        let is_for_each = collective.folds == Folds::Predecessors;
        if is_for_each || self.of.known[at] != Some(found) {
            let part = chunk / chunks_per_part;
            let is_kept = match collective.promise(self.of.schedule.roles(), rank as u32, part) {
                Promise::FoldOf(ranks) if is_for_each => self.of.terms.is_fold_of(found, ranks, chunk, tile),
                Promise::FoldOf(_) => self.of.terms.is_average_of_all(found, self.of.schedule.world_size, chunk, tile),
                Promise::CopyOf { from } => found == self.of.terms.input(from, chunk, tile),
            };
            if !is_kept {
                let found = self.of.terms.print(found);
                return Err(format!("rank {rank} leaves with {found} in chunk {chunk} of tile {tile}"));
            }
            if !is_for_each || rank + 1 == self.of.schedule.world_size as usize {
                self.of.known[at] = Some(found);
            }
        }
        match self.results[at].replace(found) {
            Some(other) if other != found && !is_for_each => {
                Err(format!("chunk {chunk} of tile {tile} differs between ranks"))
            }
            _ => Ok(()),
        }
    }
}

/// Scales, folds and divides, chunk by chunk.
fn execute(terms: &mut Terms, instruction: &Instruction, read: &[Vec<Term>]) -> Vec<Term> {
    let chunk = |terms: &mut Terms, nth: usize| {
        let sources = instruction.src.iter().zip(read);
        let scaled = sources.map(|(source, values)| match source.contribution {
            Some(rank) => terms.scaled(rank, values[nth]),
            None => values[nth],
        });
        let scaled: Vec<Term> = scaled.collect();
        let folded = if let [only] = scaled[..] { only } else { terms.fold(scaled) };
        if instruction.is_final {
            terms.divided(folded)
        } else {
            folded
        }
    };
    (0..read[0].len()).map(|nth| chunk(terms, nth)).collect()
}
