//! Reads for the keys of a group whose index partitions or blocks are not in memory.
//!
//! Each piece is read once for all keys that need it, and several pieces at once where reads have
//! been slow. A key is known by its place in the group.
//!
//! A piece that cannot be read together with others (it is long, or its file cannot be opened now)
//! is read alone afterwards: a partition here, a block when its key is searched.
//!
//! Not here: which keys need what ([`super::multi_get`]); who makes the reads ([`super::pool`]).

use shamba_env::BatchRead;
use shamba_key::SeqNo;
use shamba_table::{AbsentPartition, LoadedBlock, Located, ReadCounters, TableReader};

use super::pool::ReadPool;
use crate::error::Result;

/// The keys whose blocks are listed by index partitions that are not in memory.
#[derive(Default)]
pub(super) struct Unlocated<'a> {
    partitions: Needs<(&'a TableReader, AbsentPartition)>,
}

/// The keys whose blocks are not in memory.
#[derive(Default)]
pub(super) struct Unread<'a> {
    blocks: Needs<(&'a TableReader, Located)>,
}

/// Pieces that keys need, each once.
struct Needs<P> {
    pieces: Vec<P>,
    /// Each key's place, with the number of its piece.
    users: Vec<(usize, usize)>,
}

impl<P> Default for Needs<P> {
    fn default() -> Self {
        Self { pieces: Vec::new(), users: Vec::new() }
    }
}

impl<P> Needs<P> {
    /// Notes that the key at `place` needs `piece`, which may be one of those that `is_same` finds.
    /// Returns whether it is a new one.
    fn add(&mut self, place: usize, piece: P, is_same: impl Fn(&P) -> bool) -> bool {
        let same = self.pieces.iter().position(is_same);
        self.users.push((place, same.unwrap_or(self.pieces.len())));
        if same.is_none() {
            self.pieces.push(piece);
        }
        same.is_none()
    }

    /// The places of the keys that need piece `number`.
    fn users_of(&self, number: usize) -> impl Iterator<Item = usize> {
        self.users.iter().filter(move |(_, of)| *of == number).map(|(place, _)| *place)
    }
}

impl<'a> Unlocated<'a> {
    /// Adds the key at `place`, whose block is listed by `partition` of the table.
    pub(super) fn add(&mut self, place: usize, reader: &'a TableReader, partition: AbsentPartition) {
        self.partitions.add(place, (reader, partition), |(other_reader, other)| {
            *other == partition && std::ptr::eq(*other_reader, reader)
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.partitions.pieces.is_empty()
    }

    /// Reads the partitions, and calls `found` with the place of each key and the block that a
    /// lookup of the key at `seq` has to search. `key_at` is the key at a place.
    ///
    /// # Errors
    /// `Io` or `Corruption` from reading.
    pub(super) fn locate(
        self,
        pool: Option<&ReadPool>,
        key_at: impl Fn(usize) -> &'a [u8],
        seq: SeqNo,
        io: &mut ReadCounters,
        mut found: impl FnMut(usize, Located),
    ) -> Result<()> {
        let of = |number| -> Vec<&'a [u8]> { self.partitions.users_of(number).map(&key_at).collect() };
        let mut take = |number, located: Vec<Located>| {
            for (place, located) in self.partitions.users_of(number).zip(located) {
                found(place, located);
            }
        };
        let is_together = pool.is_some() && self.partitions.pieces.len() > 1;
        let mut together: Vec<(usize, BatchRead)> = Vec::new();
        let mut alone: Vec<usize> = Vec::new();
        for (number, (reader, partition)) in self.partitions.pieces.iter().enumerate() {
            match if is_together { reader.partition_to_read(*partition).ok().flatten() } else { None } {
                Some(read) => together.push((number, read)),
                None => alone.push(number),
            }
        }
        let (numbers, reads): (Vec<usize>, Vec<BatchRead>) = together.into_iter().unzip();
        for (number, read) in numbers.into_iter().zip(self.partitions.read(pool, reads)) {
            let Some((reader, partition)) = self.partitions.pieces.get(number) else { continue };
            take(number, reader.locate_in(*partition, read, &of(number), seq, io)?);
        }
        for number in alone {
            let Some((reader, partition)) = self.partitions.pieces.get(number) else { continue };
            take(number, reader.locate_all(*partition, &of(number), seq, io)?);
        }
        Ok(())
    }
}

impl<'a> Unread<'a> {
    /// Adds the key at `place`, whose block in the table is `located`. Returns whether it is the
    /// first key that needs this block.
    pub(super) fn add(&mut self, place: usize, reader: &'a TableReader, located: Located) -> bool {
        self.blocks.add(place, (reader, located), |(other_reader, other)| {
            other.is_same_block(&located) && std::ptr::eq(*other_reader, reader)
        })
    }

    /// Reads the blocks, and calls `keep` with each one that the cache does not keep, and the place
    /// of each key that needs it. Not with a block that cannot be read.
    pub(super) fn load(
        self,
        pool: &ReadPool,
        io: &mut ReadCounters,
        mut keep: impl FnMut(usize, LoadedBlock),
    ) {
        let (mut blocks, mut reads) = (Vec::new(), Vec::new());
        for (number, (reader, located)) in self.blocks.pieces.iter().enumerate() {
            if let Ok(Some((block, read))) = reader.block_to_read(located, io) {
                blocks.push((number, *reader, block));
                reads.push(read);
            }
        }
        for ((number, reader, block), read) in blocks.into_iter().zip(self.blocks.read(Some(pool), reads)) {
            if let Ok(Some(taken)) = reader.take_block(&block, read, io) {
                self.blocks.users_of(number).for_each(|place| keep(place, taken.clone()));
            }
        }
    }
}

impl<T> Needs<(&TableReader, T)> {
    /// Makes the reads, if there is a pool for them.
    fn read(&self, pool: Option<&ReadPool>, reads: Vec<BatchRead>) -> Vec<BatchRead> {
        match (pool, self.pieces.first()) {
            (Some(pool), Some((reader, _))) => pool.read(reads, |read| reader.read_timed(read)),
            _ => reads,
        }
    }
}
