//! Output of flushes and compactions: writes sorted entries as the tables of a run.
//!
//! Tables are cut by size ([`shamba_tree::compaction::table_size`]), never between two versions of
//! a key. Long values go to value files ([`super::separated`]). Range tombstones are clipped to the
//! key range that each table is responsible for, so that the tables of a run stay disjoint. Every
//! entry is hashed once when it is added. With [`OutputOptions::verify`] each finished table is
//! read back and compared with the added entries before an input may be deleted.

use std::path::PathBuf;
use std::sync::Arc;

use super::TableFiles;
use super::separated::{InputValues, SeparatedValues, ValueOptions};
use super::syncing::Syncing;
use crate::error::{Error, Result};
use crate::memory::Reservation;
use bytes::Bytes;
use shamba_filter::FilterLayout;
use shamba_key::{DigestFn, EntryKind, Expiry, KeyDigest, Prefix, SeqNo};
use shamba_table::clip;
use shamba_table::{
    BirthId, Charge, Compression, ContentDigest, Dictionary, EntryIter, EntryView, LedgerPart, Origin,
    RangeTombstone, Reads, TableReader, TableSummary, TableWriter, UnsyncedValueFile, ValueFileRef,
    ValueFileWriter, WrittenBlocks,
};
use shamba_tree::allocation::JobBits;
use shamba_tree::compaction::fold::FoldOutput;
use shamba_tree::compaction::table_size::TableSize;
use shamba_tree::version::level_bytes;
use shamba_tree::version::{KeyRange, TableMeta, TableUse, ValueFileMeta, ValueUses};

/// Memory for copying a long value: a frame or chunk and its piece at the source, a chunk and its
/// pieces at the destination.
const STREAM_BYTES: u64 = 4 * (64 << 10);

/// Maximum number of tables of one output that are synced in parallel. More would gain nothing on
/// one device, and each holds its writer.
const SYNCS_MAX: usize = 4;

/// Options of output tables.
#[derive(Clone)]
pub(crate) struct OutputOptions {
    /// The keyspace, recorded in each table.
    pub origin: Origin,
    pub digest: DigestFn,
    pub compression: Compression,
    /// The dictionary that blocks are compressed with.
    pub dictionary: Option<Dictionary>,
    /// Filter bits of each table.
    pub bits: Arc<JobBits>,
    pub filter_layout: FilterLayout,
    /// The extractor of the prefixes that filters hold in addition to the keys.
    pub prefix: Option<Prefix>,
    pub block_bytes: usize,
    pub block_tags: bool,
    pub table_size: TableSize,
    pub values: ValueOptions,
    pub verify: bool,
    /// Lower bound of the time of the output's oldest tombstone, in milliseconds since 1970-01-01
    /// UTC; `None`: unknown.
    pub oldest_tombstone_ms: Option<u64>,
}

/// Memory for an output under construction, and for its tables once they are open.
pub(crate) trait OutputMemory {
    /// Charges `bytes` in place of what `charge` held, after making room for them.
    fn charge(&self, charge: &mut Charge, bytes: u64);

    /// Makes room for `bytes` that opening a table will charge, until the reservation is dropped.
    fn make_room(&self, bytes: u64) -> Reservation;

    /// Raises a job's reservation to `bytes`; false if there is no memory for that.
    fn extend(&self, reservation: &mut Reservation, bytes: u64) -> bool;

    /// Loads the filter and index of a table that was just opened, as far as there is memory.
    ///
    /// # Errors
    /// Of reading them.
    fn hold_early(&self, reader: &TableReader) -> Result<()>;
}

/// The tables of a finished output, which the caller owns.
pub(crate) struct Finished {
    pub tables: Vec<TableUse>,
    /// The value files that it has written; its tables refer to others, too.
    pub value_files: Vec<Arc<ValueFileMeta>>,
}

/// The tables of one output under construction. Files that are unfinished or not installed are
/// removed on drop.
pub(crate) struct Output<'a> {
    files: &'a TableFiles,
    memory: &'a dyn OutputMemory,
    options: OutputOptions,
    /// The key range that the output is responsible for: range tombstones are clipped to it.
    stretch: KeyRange,
    /// Start of the current table's part of `stretch`.
    part_lower: Bytes,
    tombstones: Vec<RangeTombstone>,
    writer: Option<TableWriter>,
    /// Length of the current table's file before its first entry: its header page and dictionary.
    empty_bytes: u64,
    expected: ContentDigest,
    /// Estimated input entries and those processed so far, if known.
    input: Option<(u64, u64)>,
    finished: Vec<(TableSummary, WrittenBlocks)>,
    values: SeparatedValues<'a>,
    syncing: Vec<Syncing<()>>,
    installed: bool,
    /// Memory of the files being built.
    charge: Charge,
    /// A value file was begun, which is not charged yet.
    is_charge_due: bool,
    /// Limit of `charge`, and the bytes of it that others charge; `None` if memory is set aside.
    reservation: Option<(Reservation, u64)>,
}

impl<'a> Output<'a> {
    /// An output over `stretch` with these range tombstones, already thinned.
    pub fn new(
        files: &'a TableFiles,
        memory: &'a dyn OutputMemory,
        options: OutputOptions,
        stretch: KeyRange,
        tombstones: Vec<RangeTombstone>,
    ) -> Self {
        let part_lower = stretch.lower.clone();
        let charge = Charge::new(files.ledger(), LedgerPart::WriteBuffers, 0);
        let of_values = (options.compression, options.origin.keyspace);
        let values = SeparatedValues::new(files, options.values, of_values);
        Self {
            files,
            memory,
            options,
            stretch,
            part_lower,
            tombstones,
            writer: None,
            empty_bytes: 0,
            expected: ContentDigest::new(),
            input: None,
            finished: Vec::new(),
            values,
            syncing: Vec::new(),
            installed: false,
            charge,
            is_charge_due: false,
            reservation: None,
        }
    }

    /// Keeps the memory of tables being built within `reservation`, of which the caller takes
    /// `other_bytes`. A table ends where its memory would exceed it and it cannot be extended.
    pub fn within(mut self, reservation: Reservation, other_bytes: u64) -> Self {
        self.reservation = Some((reservation, other_bytes));
        self
    }

    /// Takes entries that refer to value files of `inputs`.
    pub fn reading(mut self, inputs: InputValues) -> Self {
        self.values.inputs = inputs;
        self
    }

    /// Whether the reservation allows a charge of `bytes`.
    fn may_charge(&mut self, bytes: u64) -> bool {
        match &mut self.reservation {
            Some((reservation, other_bytes)) => {
                self.memory.extend(reservation, bytes.saturating_add(*other_bytes))
            }
            None => true,
        }
    }

    /// The writer of the table for `key`, the next key.
    fn writer_for(&mut self, key: &[u8]) -> Result<&mut TableWriter> {
        let (size, empty_bytes) = (self.options.table_size, self.empty_bytes);
        let left_bytes = || self.left_bytes();
        let may_cut = |writer: &TableWriter| writer.last_key().is_some_and(|last| last != key);
        let is_full = |writer: &TableWriter| {
            let file_bytes = writer.file_bytes().saturating_sub(empty_bytes);
            size.is_reached(file_bytes, writer.entries(), left_bytes) && may_cut(writer)
        };
        if self.writer.as_ref().is_some_and(is_full) {
            self.finish_table(Some(Bytes::copy_from_slice(key)))?;
        }
        // A table without memory for more entries ends too.
        let needed_bytes = self.needed_bytes();
        if needed_bytes > self.charge.bytes()
            && self.writer.as_ref().is_some_and(may_cut)
            && !self.may_charge(needed_bytes)
        {
            self.finish_table(Some(Bytes::copy_from_slice(key)))?;
        }
        if self.writer.is_none() {
            let writer = self.files.create(&self.options)?;
            self.empty_bytes = writer.file_bytes();
            self.writer = Some(writer);
        }
        let needed_bytes = self.needed_bytes();
        if needed_bytes > self.charge.bytes() {
            self.memory.charge(&mut self.charge, needed_bytes);
        }
        self.is_charge_due = false;
        self.writer.as_mut().ok_or_else(Error::closed)
    }

    /// Memory that the open files will need with the next entries; 0 between two looks at it.
    fn needed_bytes(&self) -> u64 {
        match &self.writer {
            None => 0,
            Some(writer) if self.is_charge_due => writer.memory_bytes_soon() + self.values.memory_bytes(),
            Some(writer) => match soon_bytes(writer) {
                0 => 0,
                bytes => bytes + self.values.memory_bytes(),
            },
        }
    }

    /// Notes that `done` of an estimated `entries` of input were processed; so a small last table
    /// can be avoided.
    pub fn note_input(&mut self, entries: u64, done: u64) {
        self.input = Some((entries, done));
    }

    /// Estimated bytes still to be written: the remaining entries times the mean bytes written per
    /// processed entry, some of which were dropped.
    fn left_bytes(&self) -> u64 {
        let Some((entries, done)) = self.input else { return u64::MAX };
        let left = entries.saturating_sub(done) as f64 / done.max(1) as f64;
        (self.table_bytes() as f64 * left) as u64
    }

    /// Changes the size at which tables are cut from here on.
    pub fn set_table_size(&mut self, table_size: TableSize) {
        self.options.table_size = table_size;
    }

    /// Number and bytes of the finished tables.
    pub fn finished(&self) -> (u64, u64) {
        let bytes = self.finished.iter().map(|(summary, _)| summary.file_bytes).sum();
        (self.finished.len() as u64, bytes)
    }

    /// Bytes of tables written so far.
    fn table_bytes(&self) -> u64 {
        let (_, finished) = self.finished();
        finished + self.writer.as_ref().map_or(0, TableWriter::file_bytes)
    }

    /// Bytes of tables and value files written so far.
    pub fn bytes(&self) -> u64 {
        self.table_bytes() + self.values.bytes()
    }

    /// Finishes the current table, whose part of the range ends at `part_upper`.
    ///
    /// # Errors
    /// `Corruption` if it has entries outside of its part: those of the inputs are out of order, or
    /// outside of the range that is stated of a table.
    fn finish_table(&mut self, part_upper: Option<Bytes>) -> Result<()> {
        let lower = std::mem::replace(&mut self.part_lower, part_upper.clone().unwrap_or_default());
        let part = KeyRange { lower, upper: part_upper };
        let ends = self.writer.as_ref().map(|writer| [writer.first_key(), writer.last_key()]);
        let ends = || ends.iter().flatten().flatten();
        if ends().any(|key| !part.contains(key)) || part.upper.as_ref().is_some_and(|end| *end < part.lower) {
            let keys: Vec<_> = ends().map(|key| format!("\"{}\"", key.escape_ascii())).collect();
            let keys = keys.join(" to ");
            let detail = format!("inputs are out of order: entries {keys}, expected in {part}");
            let path = self.writer.as_ref().map(|writer| writer.path().to_path_buf());
            let path = path.unwrap_or_else(|| self.files.catalog().dir().to_path_buf());
            return Err(Error::corruption(&path, 0, "compaction output", detail));
        }
        let clipped: Vec<RangeTombstone> = self
            .tombstones
            .iter()
            .filter_map(|tomb| clip(tomb, &part.lower, part.upper.as_deref()))
            .collect();
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None if clipped.is_empty() => return Ok(()),
            None => self.files.create(&self.options)?,
        };
        // Three copies: this list, the writer's list, and the encoded section.
        let tombstones_bytes: usize = clipped.iter().map(RangeTombstone::memory_bytes).sum();
        let mut of_tombstones = Charge::new(self.files.ledger(), LedgerPart::WriteBuffers, 0);
        if tombstones_bytes > 0 {
            self.memory.charge(&mut of_tombstones, 3 * tombstones_bytes as u64);
        }
        for tombstone in clipped {
            if let Err(error) = writer.add_range_tombstone(tombstone) {
                writer.abandon();
                return Err(error.into());
            }
        }
        if let (Some(first), Some(last)) = (writer.first_key(), writer.last_key()) {
            let earlier = self.finished.iter().map(|(summary, _)| summary.entries).sum();
            let bits = self.options.bits.bits_per_key((first, last), &part, writer.entries(), earlier);
            writer.set_bits_per_key(bits);
        }
        let (summary, written, unsynced) = writer.finish_unsynced()?;
        let bytes = summary.file_bytes;
        self.finished.push((summary, written));
        self.begin_sync(bytes, move || Ok(unsynced.sync()?))?;
        if self.syncing.is_empty() {
            self.charge.resize(0);
        }
        Ok(())
    }

    /// Syncs a finished file of this length, on another thread if that pays.
    fn begin_sync(&mut self, bytes: u64, sync: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        let spawner = self.files.env().spawner.as_ref();
        if self.syncing.len() >= SYNCS_MAX {
            self.syncing.remove(0).finish()?;
        }
        debug_assert!(self.syncing.len() < SYNCS_MAX, "more files are synced in parallel than allowed");
        self.syncing.push(Syncing::begin(spawner, bytes, sync));
        // Without threads a failure is known at once; otherwise `finish` waits for the syncs.
        if spawner.is_inline() { self.finish_syncs() } else { Ok(()) }
    }

    fn begin_sync_of_values(&mut self, ended: Option<(u64, UnsyncedValueFile)>) -> Result<()> {
        match ended {
            Some((bytes, unsynced)) => self.begin_sync(bytes, move || Ok(unsynced.sync()?)),
            None => Ok(()),
        }
    }

    /// Waits until every finished file is durable.
    fn finish_syncs(&mut self) -> Result<()> {
        self.syncing.drain(..).try_for_each(Syncing::finish)
    }

    /// Adds an entry whose payload goes to a value file: `write` appends it there.
    #[inline(never)]
    fn add_separated(
        &mut self,
        (key, digest): (&[u8], Option<KeyDigest>),
        of: (SeqNo, Option<Expiry>),
        write: impl FnOnce(&mut ValueFileWriter) -> shamba_table::Result<ValueFileRef>,
    ) -> Result<()> {
        let ended = self.values.end_full()?;
        self.begin_sync_of_values(ended)?;
        let (writer, is_new) = self.values.writer()?;
        let (reference, birth) = (write(writer)?, writer.birth());
        self.is_charge_due |= is_new;
        self.add_reference((key, digest), of, reference, birth)
    }

    /// Adds an entry with a reference to a value file of this birth id.
    fn add_reference(
        &mut self,
        (key, digest): (&[u8], Option<KeyDigest>),
        of: (SeqNo, Option<Expiry>),
        reference: ValueFileRef,
        birth: BirthId,
    ) -> Result<()> {
        let content = self.writer_for(key)?.add_reference(key, digest, of, reference, birth)?;
        self.expected.merge(content);
        Ok(())
    }

    /// Finishes the last files, makes all names durable, opens the files and verifies them.
    ///
    /// # Errors
    /// Errors of the file system; `Corruption` when a file does not read back as written.
    pub fn finish(mut self) -> Result<Finished> {
        let upper = self.stretch.upper.clone();
        self.finish_table(upper)?;
        let ended = self.values.end()?;
        self.begin_sync_of_values(ended)?;
        if !self.finished.is_empty() {
            // While the contents are synced: one commit of the file system may serve both.
            self.files.catalog().sync_names()?;
        }
        self.finish_syncs()?;
        self.charge.resize(0);
        debug_assert!(
            self.values.is_empty() || !self.finished.is_empty(),
            "values are written, but no table that refers to them"
        );
        let value_files = self.values.open(self.options.verify)?;
        let mut content = ContentDigest::new();
        let mut uses = Vec::with_capacity(self.finished.len());
        for (summary, written) in &self.finished {
            content.merge(summary.content);
            let open_bytes = written.open_bytes(self.files.settings.filter_residency);
            let room = self.memory.make_room(open_bytes);
            let bounds = (&summary.smallest, summary.upper.as_ref());
            let values = self.values.uses_of(summary, &value_files)?;
            let reader = self.files.open(summary.id, summary.birth, bounds, &values)?;
            drop(room); // The reader's own charges replace it.
            debug_assert!(
                reader.fixed_bytes() <= open_bytes,
                "table {} takes {} bytes, and room was made for {open_bytes}",
                summary.id,
                reader.fixed_bytes()
            );
            self.memory.hold_early(&reader)?;
            if self.options.verify {
                reader.check_written(written)?;
            }
            let mut table = TableUse::whole(meta_of(summary, reader, values));
            table.live_bytes = level_bytes(&table, table.live_bytes);
            uses.push(table);
        }
        debug_assert!(
            uses.is_sorted_by(|one, next| {
                one.range.upper.as_ref().is_some_and(|upper| *upper <= next.range.lower)
            }),
            "tables of an output share keys"
        );
        if content != self.expected {
            let path = self.finished.first().map_or_else(PathBuf::new, |(s, _)| self.files.path(s.id));
            return Err(Error::corruption(
                &path,
                0,
                "compaction output",
                "its digest differs from that of the inputs",
            ));
        }
        // From here on the caller owns the files.
        self.installed = true;
        self.values.keep();
        Ok(Finished { tables: uses, value_files: value_files.into_values().collect() })
    }
}

impl FoldOutput for Output<'_> {
    type Error = Error;

    #[inline]
    fn add(
        &mut self,
        key: &[u8],
        digest: Option<KeyDigest>,
        seq: SeqNo,
        kind: EntryKind,
        value: &[u8],
    ) -> Result<()> {
        let payload_bytes = value.len() as u64;
        if self.values.takes(kind, payload_bytes) {
            let of = (seq, Expiry::of(kind, value));
            return self.add_separated((key, digest), of, |writer| writer.add(key, seq, kind, value));
        }
        let content = self.writer_for(key)?.add_counted(key, digest, seq, kind, value)?;
        self.expected.merge(content);
        Ok(())
    }

    fn add_large(&mut self, entries: &dyn EntryIter) -> Result<()> {
        let EntryView { key, seq, kind, value, .. } = entries.view();
        let expiry = Expiry::of(kind, value);
        let separated = entries.separated()?;
        if let Some((file, reference)) = separated {
            if !self.values.inputs.is_collected(reference.file) {
                return self.add_reference((key, entries.digest()), (seq, expiry), reference, file.birth());
            }
        }
        let payload_bytes = entries.value_bytes_len()?;
        let value_bytes = self.values.memory_bytes();
        let with_stream_bytes = self.writer_for(key)?.memory_bytes_soon() + value_bytes + STREAM_BYTES;
        if with_stream_bytes > self.charge.bytes() {
            self.memory.charge(&mut self.charge, with_stream_bytes);
        }
        // Of a value that moves, the fingerprint is compared: it must be the one of this entry.
        let mut source = |sink: &mut dyn FnMut(&[u8]) -> _| match separated {
            Some((file, reference)) => {
                file.read_checked(reference, (key, seq, kind), &mut Reads::default(), sink)
            }
            None => entries.read_value(sink),
        };
        if self.values.takes(kind, payload_bytes) {
            return self.add_separated((key, None), (seq, expiry), |writer| {
                writer.add_streamed(key, seq, kind.whole(), payload_bytes, &mut source)
            });
        }
        let writer = self.writer_for(key)?;
        let digest = match expiry {
            None => writer.add_streamed(key, seq, payload_bytes, &mut source)?,
            Some(expiry) => writer.add_streamed_expiring(key, (seq, expiry), payload_bytes, &mut source)?,
        };
        self.expected.merge(digest);
        Ok(())
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.abandon();
        }
        self.syncing.clear();
        if !self.installed {
            for (summary, _) in &self.finished {
                self.files.catalog().mark_file_obsolete(self.files.path(summary.id));
            }
        }
    }
}

/// Memory that a table being built will need with its next entries; 0 between two looks at it.
fn soon_bytes(writer: &TableWriter) -> u64 {
    let is_due = writer.entries() % TableWriter::SOON_ENTRIES as u64 == 0;
    if is_due { writer.memory_bytes_soon() } else { 0 }
}

/// Manifest metadata of a table that was just written.
fn meta_of(summary: &TableSummary, reader: Arc<TableReader>, values: ValueUses) -> Arc<TableMeta> {
    debug_assert!(
        summary.smallest_seq <= summary.largest_seq,
        "a table was written with sequence numbers from {} to {}",
        summary.smallest_seq,
        summary.largest_seq
    );
    debug_assert!(summary.deletes <= summary.entries, "a table was written with more deletes than entries");
    let meta = TableMeta {
        id: summary.id,
        birth: summary.birth,
        file_bytes: summary.file_bytes,
        entries: summary.entries,
        deletes: summary.deletes,
        range_deletes: summary.range_deletes,
        smallest: summary.smallest.clone(),
        upper: summary.upper.clone(),
        smallest_seq: summary.smallest_seq,
        largest_seq: summary.largest_seq,
        bits_per_key: summary.bits_per_key,
        oldest_tombstone: summary.oldest_tombstone_ms.into(),
        older_versions: summary.older_versions.into(),
        expiring: summary.expiring.into(),
        values: values.into(),
        reader: Default::default(),
        statistics: Default::default(),
    };
    meta.reader.set(reader);
    Arc::new(meta)
}
