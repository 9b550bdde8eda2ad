//! The end of a table: writes index, filter, range tombstones, properties and footer.
//!
//! Not here: the entries ([`super`]), the encoding of each section ([`crate::format`]).

use bytes::Bytes;
use shamba_filter::Filter;
use shamba_key::SeqNo;

use super::{TableSummary, TableWriter};
use crate::compression::Compression;
use crate::filter_section;
use crate::format::footer::Footer;
use crate::format::partitions::PartitionSummary;
use crate::format::properties::Properties;
use crate::format::{
    FEATURE_EXPIRY, FEATURE_OPERANDS, FEATURE_VALUE_FILES, FEATURE_VALUES, HEADER_BYTES, Section, SectionKind,
};
use crate::index::last_separator;
use crate::range::{self, RangeTombstone};
use crate::reader::{OPEN_BYTES, filter_meta_bytes, filter_whole_bytes, value_uses_bytes};
use crate::written::{OpenMemory, WrittenBlocks};
use crate::{Error, Result};

impl TableWriter {
    /// Writes the remaining sections and makes the content durable (not the name: sync the
    /// directory).
    ///
    /// # Errors
    /// `Invalid` for an empty table; `Io` when writing or syncing fails. The writer then tries to
    /// remove the file.
    pub fn finish(self) -> Result<TableSummary> {
        self.finish_written().map(|(summary, _)| summary)
    }

    /// [`Self::finish`]; also returns the data for a check of the file
    /// ([`crate::TableReader::check_written`]).
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub fn finish_written(self) -> Result<(TableSummary, WrittenBlocks)> {
        let (summary, written, unsynced) = self.finish_unsynced()?;
        unsynced.sync()?;
        Ok((summary, written))
    }

    /// [`Self::finish_written`] without the sync, which the caller can run elsewhere while it
    /// continues.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub fn finish_unsynced(mut self) -> Result<(TableSummary, WrittenBlocks, UnsyncedTable)> {
        let summary = self.write_rest()?;
        let written = std::mem::take(&mut self.written);
        self.digests = Vec::new();
        Ok((summary, written, UnsyncedTable(self)))
    }

    /// Abandons the table: closes the file and tries to remove it.
    pub fn abandon(self) {
        drop(self);
    }

    fn write_rest(&mut self) -> Result<TableSummary> {
        if self.is_empty() {
            return Err(Error::Invalid("a table without entries".to_owned()));
        }
        if self.is_torn {
            return Err(Error::Invalid("a table with part of a value".to_owned()));
        }
        self.cut_block()?;
        if let Some(handle) = self.unlisted.take() {
            let last = last_separator(&self.last_key, &mut self.separator);
            self.index.push(last, SeqNo::ZERO, handle);
        }
        let mut sections = Sections { done: Vec::new(), next: self.start };
        assert!(self.block.is_empty(), "the data section ends with an open block");
        assert!(self.unlisted.is_none(), "the last block has no separator");
        sections.close(SectionKind::Data, self.out.offset());
        let index = std::mem::take(&mut self.index);
        assert_eq!(
            self.entries > 0,
            self.data_blocks > 0,
            "{} entries in {} blocks",
            self.entries,
            self.data_blocks
        );
        let mut partitions = Vec::new();
        let mut open = OpenMemory { fixed_bytes: OPEN_BYTES, whole_bytes: 0 };
        if self.entries > 0 {
            let written = index.finish(self.start, |payload| self.out.frame(payload, Compression::None))?;
            open.fixed_bytes += written.open_bytes(self.data_blocks);
            partitions = written.summaries;
            open.whole_bytes += sections.close(SectionKind::Index, self.out.offset());
            self.out.frame(&written.top, Compression::None)?;
            sections.close(SectionKind::IndexTop, self.out.offset());
        }
        let (layout, bits_per_key) = (self.options.filter_layout, self.options.bits_per_key);
        if let Some(filter) = Filter::build(&self.digests, layout, bits_per_key) {
            let (birth, offset) = (self.options.birth, self.out.offset());
            filter_section::write(&filter, birth, offset, |piece| self.out.append(piece))?;
            let geometry = filter.geometry();
            open.fixed_bytes += filter_meta_bytes(geometry);
            open.whole_bytes += filter_whole_bytes(geometry);
        }
        sections.close(SectionKind::Filter, self.out.offset());
        let properties = self.properties(partitions);
        debug_assert!(
            properties.smallest_seq <= properties.largest_seq,
            "sequence numbers from {} to {}",
            properties.smallest_seq,
            properties.largest_seq
        );
        debug_assert!(
            properties.upper.as_ref().is_none_or(|upper| properties.smallest < *upper),
            "the table's bounds hold no key"
        );
        debug_assert!(properties.deletes <= properties.entries, "more deletes than entries");
        debug_assert!(properties.filter_keys <= properties.entries, "more keys than entries");
        // The dictionary; the list of tombstones, and the section from which it is decoded.
        let tombstones_bytes: usize = self.tombstones.iter().map(RangeTombstone::memory_bytes).sum();
        open.fixed_bytes += (self.start as usize).saturating_sub(HEADER_BYTES)
            + properties.bounds_bytes()
            + 2 * tombstones_bytes
            + value_uses_bytes(properties.value_files.len());
        self.written.open = open;
        if !self.tombstones.is_empty() {
            self.out.frame(&range::encode(&mut self.tombstones), Compression::None)?;
        }
        sections.close(SectionKind::RangeTombstones, self.out.offset());
        self.out.frame(&properties.encode(self.origin.as_ref()), Compression::None)?;
        sections.close(SectionKind::Properties, self.out.offset());
        let values = if self.has_values { FEATURE_VALUES } else { 0 };
        let operands = if self.has_operands { FEATURE_OPERANDS } else { 0 };
        let expiry = if self.expiring.is_empty() { 0 } else { FEATURE_EXPIRY };
        let value_files = if properties.value_files.is_empty() { 0 } else { FEATURE_VALUE_FILES };
        let required = values | operands | expiry | value_files;
        let footer =
            Footer { start: self.start, sections: sections.done, digest: self.options.digest, required };
        let footer = footer.encode(self.options.birth, self.out.offset());
        self.out.append(&footer)?;
        let file_bytes = self.out.offset();
        Ok(TableSummary::of(self.options.id, self.options.birth, file_bytes, &properties))
    }

    fn properties(&self, partitions: Vec<PartitionSummary>) -> Properties {
        let last_upper = (self.entries > 0).then(|| {
            // Exact capacity: the bound stays in memory as long as the table is open.
            Bytes::from([&self.last_key[..], &[0]].concat())
        });
        let starts = self.tombstones.iter().map(|tombstone| tombstone.start.clone());
        let ends = self.tombstones.iter().map(|tombstone| tombstone.end.clone());
        // `None` is the largest upper bound: no end.
        let open = self.tombstones.iter().any(|tombstone| tombstone.end.is_none());
        let upper = if open { None } else { ends.flatten().chain(last_upper).max() };
        let (smallest_seq, largest_seq) = self.seqs.unwrap_or_default();
        Properties {
            entries: self.entries,
            deletes: self.deletes,
            range_deletes: self.tombstones.len() as u64,
            data_blocks: self.data_blocks,
            // With 0 bits no filter is built.
            filter_keys: if self.options.bits_per_key > 0.0 {
                self.digests.len() as u64 - self.prefixes
            } else {
                0
            },
            keys: Some(self.keys),
            prefix: self.options.prefix.filter(|_| self.options.bits_per_key > 0.0),
            filter_prefixes: if self.options.bits_per_key > 0.0 { self.prefixes } else { 0 },
            raw_key_bytes: self.raw_key_bytes,
            raw_value_bytes: self.raw_value_bytes,
            smallest: self.first_key.clone().into_iter().chain(starts).min().unwrap_or_default(),
            upper,
            smallest_seq,
            largest_seq,
            content: self.content,
            bits_per_key: self.options.bits_per_key,
            block_bytes: self.options.block_bytes as u32,
            compression: self.options.compression,
            oldest_tombstone_ms: self
                .oldest_tombstone_ms
                .filter(|_| self.deletes > 0 || !self.tombstones.is_empty()),
            expiring: self.expiring.entries(self.raw_key_bytes + self.raw_value_bytes),
            value_files: self.value_uses.to_list(),
            partitions,
        }
    }
}

/// The sections written so far.
struct Sections {
    done: Vec<Section>,
    next: u64,
}

impl Sections {
    /// Adds the section of this kind from the end of the last one to `end`; absent if it is empty.
    /// Returns its length.
    fn close(&mut self, kind: SectionKind, end: u64) -> usize {
        assert!(end >= self.next, "section {kind} ends at {end}, before its start {}", self.next);
        debug_assert!(self.done.last().is_none_or(|last| last.kind < kind), "section {kind} is out of order");
        let bytes = end - self.next;
        if bytes > 0 {
            self.done.push(Section { kind, offset: self.next, bytes });
            self.next = end;
        }
        bytes as usize
    }
}

/// A complete table that is not yet durable. If it is dropped, it tries to remove its file.
#[derive(Debug)]
pub struct UnsyncedTable(TableWriter);

impl UnsyncedTable {
    /// Makes the content durable (not the name: sync the directory).
    ///
    /// # Errors
    /// `Io` when syncing fails. It then tries to remove the file.
    pub fn sync(mut self) -> Result<()> {
        self.0.out.sync()?;
        self.0.keep = true;
        Ok(())
    }
}
