//! Reads for the keys of a group whose index partitions or blocks are not in memory.
//!
//! Each piece is read once for all keys that need it, and several pieces at once where reads have
//! been slow. A key is known by its place in the group.
//!
//! Not here: which keys need what ([`super::multi_get`]); who makes the reads ([`super::pool`]).

use shamba_key::SeqNo;
use shamba_table::{AbsentPartition, LoadedBlock, Located, ReadCounters, TableReader};

use super::pool::ReadPool;
use crate::error::Result;

/// The keys whose blocks are listed by index partitions that are not in memory.
#[derive(Default)]
pub(super) struct Unlocated<'a> {
    partitions: Vec<KeysOfPartition<'a>>,
}

struct KeysOfPartition<'a> {
    reader: &'a TableReader,
    partition: AbsentPartition,
    keys: Vec<&'a [u8]>,
    /// Of the keys, in the same order.
    places: Vec<usize>,
}

/// The keys whose blocks are not in memory.
#[derive(Default)]
pub(super) struct Unread<'a> {
    blocks: Vec<KeysOfBlock<'a>>,
}

struct KeysOfBlock<'a> {
    reader: &'a TableReader,
    located: Located,
    places: Vec<usize>,
}

impl<'a> Unlocated<'a> {
    /// Adds the key at `place`, whose block is listed by `partition` of the table.
    pub(super) fn add(
        &mut self,
        place: usize,
        key: &'a [u8],
        reader: &'a TableReader,
        partition: AbsentPartition,
    ) {
        let same = |other: &&mut KeysOfPartition<'_>| {
            other.partition == partition && std::ptr::eq(other.reader, reader)
        };
        match self.partitions.iter_mut().find(same) {
            Some(other) => {
                other.keys.push(key);
                other.places.push(place);
            }
            None => self.partitions.push(KeysOfPartition {
                reader,
                partition,
                keys: vec![key],
                places: vec![place],
            }),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// Reads the partitions. Returns the place of each key, and the block that a lookup of the key
    /// at `seq` has to search.
    ///
    /// # Errors
    /// `Io` or `Corruption` from reading.
    pub(super) fn locate(
        self,
        pool: Option<&ReadPool>,
        seq: SeqNo,
        io: &mut ReadCounters,
    ) -> Result<Vec<(usize, Located)>> {
        let mut found = Vec::new();
        match pool {
            Some(pool) if self.partitions.len() > 1 => {
                let reads = self.partitions.iter().map(|of| of.reader.partition_to_read(of.partition));
                let reads = pool.read(reads.collect::<std::result::Result<_, _>>()?);
                for (of, read) in self.partitions.into_iter().zip(reads) {
                    let located = of.reader.locate_in(of.partition, read, &of.keys, seq, io)?;
                    found.extend(of.places.into_iter().zip(located));
                }
            }
            _ => {
                for of in self.partitions {
                    let located = of.reader.locate_all(of.partition, &of.keys, seq, io)?;
                    found.extend(of.places.into_iter().zip(located));
                }
            }
        }
        Ok(found)
    }
}

impl<'a> Unread<'a> {
    /// Adds the key at `place`, whose block in the table is `located`. Returns whether it is the
    /// first key that needs this block.
    pub(super) fn add(&mut self, place: usize, reader: &'a TableReader, located: Located) -> bool {
        let same = |other: &&mut KeysOfBlock<'_>| {
            other.located.is_same_block(&located) && std::ptr::eq(other.reader, reader)
        };
        if let Some(other) = self.blocks.iter_mut().find(same) {
            other.places.push(place);
            return false;
        }
        self.blocks.push(KeysOfBlock { reader, located, places: vec![place] });
        true
    }

    /// Reads the blocks. Returns those that the cache does not keep, with the places of the keys
    /// that need them. A block that cannot be read is not among them.
    pub(super) fn load(self, pool: &ReadPool, io: &mut ReadCounters) -> Vec<(usize, LoadedBlock)> {
        let (mut blocks, mut reads) = (Vec::new(), Vec::new());
        for of in self.blocks {
            if let Ok(Some((block, read))) = of.reader.block_to_read(&of.located, io) {
                blocks.push((of, block));
                reads.push(read);
            }
        }
        let mut loaded = Vec::new();
        for ((of, block), read) in blocks.into_iter().zip(pool.read(reads)) {
            if let Ok(Some(taken)) = of.reader.take_block(&block, read, io) {
                loaded.extend(of.places.iter().map(|place| (*place, taken.clone())));
            }
        }
        loaded
    }
}
