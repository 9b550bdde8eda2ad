//! Merging of sorted chunks: a tournament of their next entries, and a merge that proceeds in
//! steps.
//!
//! The choice of chunks to merge is in `super`, merging for a reader in [`super::super::iter`].

use std::cmp::Ordering;
use std::sync::Arc;

use shamba_key::{SeqNo, head};

use super::super::arena::{Entries, EntryRef, EntryView};
use super::chunk::Chunk;
use super::summary::SummaryBuilder;

/// Distance in entries at which a merge prefetches.
const PREFETCH_AHEAD: usize = 4;

/// The end of the order that wins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Direction {
    Forward,
    Backward,
}

/// A loser tree over the next entries of some lanes. The winner is available at once, and replacing
/// it costs one comparison per doubling of the number of lanes.
#[derive(Default)]
pub(in super::super) struct Tournament {
    lanes: Vec<Option<Contender>>,
    /// Place 0 holds the winner. Place n > 0 holds the loser of the game between the winners of 2n
    /// and 2n + 1. Lane i enters at place (number of lanes) + i.
    tree: Vec<u32>,
    prefix: usize,
    backward: bool,
}

#[derive(Clone, Copy)]
struct Contender {
    head: u64,
    entry: EntryRef,
    seq: SeqNo,
}

impl Contender {
    #[inline]
    fn new(entries: Entries<'_>, entry: EntryRef, prefix: usize) -> Self {
        let EntryView { key, seq, .. } = entries.get(entry);
        Self { head: head(&key[prefix..]), entry, seq }
    }
}

/// The entry that is first in order.
pub(in super::super) struct Winner {
    /// Its lane.
    pub lane: usize,
    pub entry: EntryRef,
    /// The head of its key after the common prefix.
    pub head: u64,
    pub seq: SeqNo,
}

impl Tournament {
    /// Begins with the next entry of each lane; all keys are equal in their first `prefix` bytes.
    pub fn begin(
        &mut self,
        entries: Entries<'_>,
        prefix: usize,
        direction: Direction,
        next: impl Iterator<Item = Option<EntryRef>>,
    ) {
        (self.prefix, self.backward) = (prefix, direction == Direction::Backward);
        self.lanes.clear();
        self.lanes.extend(next.map(|entry| entry.map(|entry| Contender::new(entries, entry, prefix))));
        let count = self.lanes.len();
        // Winners of all games, last game first; their losers stay in the tree.
        self.tree.clear();
        self.tree.resize(count, 0);
        let mut winners = vec![0u32; 2 * count];
        for place in (1..2 * count).rev() {
            if place >= count {
                winners[place] = (place - count) as u32;
                continue;
            }
            let (a, b) = (winners[2 * place], winners[2 * place + 1]);
            let (winner, loser) = if self.beats(entries, b, a) { (b, a) } else { (a, b) };
            (winners[place], self.tree[place]) = (winner, loser);
        }
        if let (Some(first), Some(winner)) = (self.tree.first_mut(), winners.get(1)) {
            *first = *winner;
        }
        debug_assert!(
            self.tree.first().is_none_or(|winner| {
                (0..count as u32).all(|lane| lane == *winner || !self.beats(entries, lane, *winner))
            }),
            "a lane of {count} beats the winner {:?}",
            self.tree.first()
        );
    }

    /// The entry that is first in order.
    #[inline]
    pub fn winner(&self) -> Option<Winner> {
        let lane = *self.tree.first()? as usize;
        let Contender { head, entry, seq } = self.lanes[lane]?;
        Some(Winner { lane, entry, head, seq })
    }

    /// Replaces the winner's entry by the next one of its lane.
    #[inline]
    pub fn replace_winner(&mut self, entries: Entries<'_>, next: Option<EntryRef>) {
        let Some(mut winner) = self.tree.first().copied() else { return };
        let prefix = self.prefix;
        debug_assert!(
            self.follows(entries, self.lanes[winner as usize].map(|winner| winner.entry), next),
            "lane {winner} is not in order: {next:?} does not follow its winner"
        );
        self.lanes[winner as usize] = next.map(|entry| Contender::new(entries, entry, prefix));
        let mut place = (self.lanes.len() + winner as usize) / 2;
        while place > 0 {
            let other = self.tree[place];
            if self.beats(entries, other, winner) {
                self.tree[place] = winner;
                winner = other;
            }
            place /= 2;
        }
        self.tree[0] = winner;
    }

    /// Whether a lane may continue with `next` after `entry`: both are in order, and nothing comes
    /// after the end of the lane.
    fn follows(&self, entries: Entries<'_>, entry: Option<EntryRef>, next: Option<EntryRef>) -> bool {
        match (entry, next) {
            (Some(entry), Some(next)) => entries.cmp(entry, next).is_lt() != self.backward,
            (None, Some(_)) => false,
            (_, None) => true,
        }
    }

    #[inline]
    fn beats(&self, entries: Entries<'_>, a: u32, b: u32) -> bool {
        let (Some(a), Some(b)) = (self.lanes[a as usize], self.lanes[b as usize]) else {
            return self.lanes[a as usize].is_some();
        };
        match a.head.cmp(&b.head).then_with(|| entries.cmp(a.entry, b.entry)) {
            Ordering::Less => !self.backward,
            _ => self.backward,
        }
    }
}

/// A merge of some chunks into one, in progress.
pub(super) struct Merge {
    inputs: Vec<Arc<Chunk>>,
    /// Number of entries of each input that have been moved.
    done: Vec<usize>,
    tournament: Tournament,
    prefix: usize,
    refs: Vec<EntryRef>,
    samples: Vec<u64>,
    summary: SummaryBuilder,
    entries: usize,
}

impl Merge {
    /// A merge of `inputs`, whose keys are equal in their first `prefix` bytes.
    pub fn new(entries: Entries<'_>, inputs: Vec<Arc<Chunk>>, prefix: usize) -> Self {
        let mut tournament = Tournament::default();
        let firsts = inputs.iter().map(|chunk| chunk.refs().first().copied());
        tournament.begin(entries, prefix, Direction::Forward, firsts);
        let count = inputs.iter().map(|chunk| chunk.refs().len()).sum();
        Self {
            done: vec![0; inputs.len()],
            inputs,
            tournament,
            prefix,
            refs: Vec::with_capacity(count),
            samples: Vec::new(),
            summary: SummaryBuilder::with_capacity(count),
            entries: count,
        }
    }

    /// Moves up to `budget` entries. Returns the unused part of the budget.
    pub fn advance(&mut self, entries: Entries<'_>, budget: usize) -> usize {
        for moved in 0..budget {
            let Some(Winner { lane, entry, head, seq }) = self.tournament.winner() else {
                return budget - moved;
            };
            if Chunk::is_sampled(self.refs.len()) {
                self.samples.push(head);
            }
            self.summary.push(seq);
            debug_assert!(
                self.refs.last().is_none_or(|last| entries.cmp(*last, entry).is_lt()),
                "entry {} of a merge, from input {lane}, is not after the one before it",
                self.refs.len()
            );
            self.refs.push(entry);
            self.done[lane] += 1;
            let (refs, next) = (self.inputs[lane].refs(), self.done[lane]);
            if let Some(later) = refs.get(next + PREFETCH_AHEAD) {
                entries.prefetch(*later);
            }
            self.tournament.replace_winner(entries, refs.get(next).copied());
        }
        0
    }

    /// Whether all entries have been moved.
    pub fn is_done(&self) -> bool {
        debug_assert!(
            self.refs.len() <= self.entries,
            "{} of {} entries were moved",
            self.refs.len(),
            self.entries
        );
        self.refs.len() == self.entries
    }

    /// The merged chunk.
    pub fn finish(self) -> Chunk {
        assert_eq!(self.refs.len(), self.entries, "a merge ends before all entries were moved");
        Chunk::sampled(self.refs, self.prefix, self.samples, self.summary.finish())
    }
}
