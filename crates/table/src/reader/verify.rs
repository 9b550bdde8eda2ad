//! The full check of a table: every byte of it, read from the file.
//!
//! Reports all damage that it can distinguish: each section, each index partition, each filter
//! slice, each data block separately. Totals (counts, content digest, bounds) are compared only if
//! no data block is damaged, so that one cause is reported once. Every key is also asked of the
//! filter as it is in the file, whatever is resident: of its first 16 MiB, that is, all of it in a
//! table of up to some ten million keys.

use std::collections::{BTreeMap, BTreeSet};

use shamba_key::{DigestFn, EntryKind, Expiry, KeyDigest, Operand, SeqNo, internal_cmp};

use super::filter::TableFilter;
use super::load::{
    DATA_BLOCK, Loaded, PROPERTIES, RANGE_TOMBSTONES, load_dictionary, load_footer_of, load_header,
    load_properties, load_tombstones,
};
use super::resident::ResidentFilter;
use super::walked::ListedBlock;
use crate::block::DataBlock;
use crate::compression::Compression;
use crate::content::ContentDigest;
use crate::counters::Reads;
use crate::expiring::ExpiryTimes;
use crate::filter_section::StoredFilter;
use crate::format::{FOOTER_BYTES, SectionKind, footer, placement};
use crate::id::ValueFileId;
use crate::index::{self, Handle};
use crate::summary::TableSummary;
use crate::values::{self, VALUE_REFERENCE};
use crate::{Error, Result};

/// Maximum number of damaged values in value files that a check of a table reports: a missing file
/// would have one for each reference.
const VALUE_ERRORS_MAX: usize = 100;

/// Maximum number of keys that a filter denies which a check of a table reports.
const DENIALS_MAX: usize = 100;

/// Name of a filter that denies a key of its table, in errors. Unlike a damaged one, which is left
/// out, it makes lookups miss the key.
pub const WRONG_FILTER: &str = "wrong filter";

/// Name of the zeros between blocks in errors.
const PADDING: &str = "padding";

/// The parts of a table that the full check compares with the bytes of its file.
pub(super) struct CheckedTable<'a> {
    pub(super) loaded: &'a Loaded,
    pub(super) summary: &'a TableSummary,
    pub(super) digest: DigestFn,
    pub(super) filter: Option<&'a TableFilter>,
}

impl CheckedTable<'_> {
    /// Reads every byte of every section and returns all damage; empty if there is none.
    pub(super) fn damage(self) -> Vec<Error> {
        let mut check = Check {
            table: self,
            filter: None,
            damage: Vec::new(),
            of_values: Vec::new(),
            denials: Vec::new(),
            seen: Seen::default(),
        };
        check.length();
        check.sections();
        let unreadable = check.index();
        check.data(&unreadable);
        check.damage.append(&mut check.of_values);
        check.damage.append(&mut check.denials);
        check.damage
    }

    fn inside(&self, key: &[u8], seq: SeqNo) -> bool {
        let upper = self.summary.upper.as_ref();
        *key >= *self.summary.smallest && upper.is_none_or(|upper| *key < **upper) && self.seq_inside(seq)
    }

    fn seq_inside(&self, seq: SeqNo) -> bool {
        (self.summary.smallest_seq..=self.summary.largest_seq).contains(&seq)
    }
}

/// A full check in progress.
struct Check<'a> {
    table: CheckedTable<'a>,
    /// The filter, read for the check.
    filter: Option<ResidentFilter>,
    /// Damage found so far.
    damage: Vec<Error>,
    /// Damage to values in value files, which is none of the table's.
    of_values: Vec<Error>,
    /// Keys and prefixes that the filter denies.
    denials: Vec<Error>,
    /// Totals of the data checked so far.
    seen: Seen,
}

impl Check<'_> {
    /// Compares the file's length with its length at open: the file may have changed since.
    fn length(&mut self) {
        let file = &self.table.loaded.file;
        match file.length_now() {
            Ok(bytes) if bytes != file.bytes => self.damage.push(file.damaged(
                bytes.min(file.bytes),
                "file",
                format!("{bytes} bytes long, expected {}", file.bytes),
            )),
            Ok(_) => {}
            Err(error) => self.damage.push(error),
        }
    }

    fn sections(&mut self) {
        let CheckedTable { loaded, summary, filter, .. } = self.table;
        let (file, damage) = (&loaded.file, &mut self.damage);
        let footer_at = file.bytes.saturating_sub(FOOTER_BYTES as u64);
        keep(damage, load_header(file, Some(file.birth)).map(|_| ()));
        keep(
            damage,
            load_footer_of(file, &loaded.header).and_then(|found| {
                same(found == loaded.footer, || {
                    file.damaged(footer_at, footer::STRUCTURE, "it changed since the table was opened")
                })
            }),
        );
        keep(damage, load_dictionary(file, loaded.header.dictionary_frame_bytes).map(|_| ()));
        keep(damage, load_properties(file, &loaded.footer).map(|_| ()));
        keep(damage, load_tombstones(file, &loaded.footer, &loaded.properties).map(|_| ()));
        if let Some(section) = loaded.footer.section(SectionKind::Filter) {
            keep(damage, StoredFilter::load(file, section).map(|_| ()));
            if let Some(filter) = filter {
                match filter.verify(file).and_then(|found| Ok((found, filter.whole(file)?))) {
                    Ok((found, whole)) => {
                        damage.extend(found);
                        self.filter = Some(whole);
                    }
                    Err(error) => damage.push(error),
                }
            }
        }
        for tombstone in &loaded.tombstones {
            let upper = summary.upper.as_ref();
            let inside = tombstone.start >= summary.smallest
                && upper.is_none_or(|upper| tombstone.end.as_ref().is_some_and(|end| end <= upper))
                && self.table.seq_inside(tombstone.seq);
            if !inside {
                let offset = loaded.footer.section(SectionKind::RangeTombstones).map_or(0, |at| at.offset);
                damage.push(file.damaged(offset, RANGE_TOMBSTONES, "one is out of bounds"));
            }
        }
    }

    /// Checks the index and returns the damaged partitions.
    fn index(&mut self) -> BTreeSet<usize> {
        let (loaded, damage) = (self.table.loaded, &mut self.damage);
        let (file, index) = (&loaded.file, &loaded.index);
        if let Some(top) = loaded.footer.section(SectionKind::IndexTop) {
            keep(damage, file.payload(top.offset, top.bytes, index::TOP).map(|_| ()));
        }
        let mut unreadable = BTreeSet::new();
        for number in 0..index.partitions() {
            if let Err(error) = index.read_whole(file, number) {
                damage.push(error);
                unreadable.insert(number);
            }
        }
        unreadable
    }

    /// Checks the data blocks. The blocks of a partition that is neither in memory nor readable
    /// cannot be found; the partition is reported instead.
    fn data(&mut self, unreadable: &BTreeSet<usize>) {
        let loaded = self.table.loaded;
        let (before, mut is_whole) = (self.damage.len(), true);
        let mut next = loaded.header.end();
        for number in 0..loaded.index.partitions() {
            let partition = match loaded.partition(number) {
                Ok(partition) => partition,
                Err(error) => {
                    if !unreadable.contains(&number) {
                        self.damage.push(error);
                    }
                    is_whole = false;
                    self.seen.last = None;
                    next = loaded.index.bounds(number).map_or(next, |bounds| bounds.end);
                    continue;
                }
            };
            for block in loaded.blocks_of(number, &partition) {
                let chunks_end = match self.block(&block, next) {
                    Ok(chunks_end) => Some(chunks_end),
                    Err(error) => {
                        self.damage.push(error);
                        self.chunks(next, block.handle)
                    }
                };
                if let Some(chunks_end) = chunks_end {
                    keep(&mut self.damage, check_padding(loaded, chunks_end, block.handle));
                }
                next = block.handle.end();
            }
        }
        if is_whole && self.damage.len() == before {
            self.totals();
        }
    }

    /// Checks the chunks before a damaged block. Returns their end, if it can be determined.
    fn chunks(&mut self, start: u64, next: Handle) -> Option<u64> {
        let loaded = self.table.loaded;
        if !loaded.has_values() {
            return Some(start);
        }
        match values::walk(&loaded.file, start, next.offset, &mut self.damage) {
            Ok(end) => end,
            Err(error) => {
                self.damage.push(error);
                None
            }
        }
    }

    /// Reads the value of a large entry, and adds it to the totals.
    fn value(&mut self, key: &[u8], seq: SeqNo, kind: EntryKind, payload: &[u8]) -> Result<()> {
        let loaded = self.table.loaded;
        if kind.in_value_file() {
            return self.separated(key, seq, kind, payload);
        }
        let reference = loaded.value_ref(kind.location(payload))?;
        let mut content = ContentDigest::of_streamed(key, seq, kind.whole());
        values::read(&loaded.file, reference, &mut Reads::default(), &mut |piece| {
            match piece {
                Ok(piece) => content.push(piece),
                Err(error) => self.damage.push(error),
            }
            Ok(())
        })?;
        self.seen.content.merge(content.finish());
        self.seen.value_bytes += u64::from(reference.value_bytes);
        Ok(())
    }

    /// Adds a reference to a value file to the totals, and reads the value if the file is known.
    fn separated(&mut self, key: &[u8], seq: SeqNo, kind: EntryKind, payload: &[u8]) -> Result<()> {
        let loaded = self.table.loaded;
        let reference = loaded.file_ref(kind.location(payload))?;
        self.seen.content.merge(reference.content(key, seq, kind));
        self.seen.value_bytes += u64::from(reference.value_bytes);
        let (values, bytes) = self.seen.uses.entry(reference.file).or_default();
        *values += 1;
        *bytes += u64::from(reference.stored_bytes);
        if loaded.value_files.is_empty() || self.of_values.len() >= VALUE_ERRORS_MAX {
            return Ok(());
        }
        if let Some((file, reference)) = loaded.separated(kind, payload)? {
            let mut cost = Reads::default();
            let read = file.read_checked(reference, (key, seq, kind), &mut cost, &mut |_| Ok(()));
            self.of_values.extend(read.err());
        }
        Ok(())
    }

    /// Checks a block and the values that it refers to; returns the end of their chunks.
    fn block(&mut self, listed: &ListedBlock<'_>, next: u64) -> Result<u64> {
        let loaded = self.table.loaded;
        let (file, handle) = (&loaded.file, listed.handle);
        let damaged = |detail: String| file.damaged(handle.offset, DATA_BLOCK, detail);
        // If this block is damaged, the next block's keys are compared with separators only.
        let previous = std::mem::take(&mut self.seen.last);
        let bytes = file.read(handle.offset, u64::from(handle.bytes), DATA_BLOCK)?;
        let (payload, compression) = loaded.decode_block(handle, bytes)?;
        let block = DataBlock::view(&payload).map_err(damaged)?;
        block.check().map_err(damaged)?;
        let block_bytes = usize::try_from(loaded.properties.block_bytes).unwrap_or(usize::MAX);
        let chunks_end = chunks_end(loaded, block, handle, next)?;
        let (is_start, expected) = match compression {
            Compression::None => (
                placement::is_start(chunks_end, block_bytes, handle.offset),
                placement::start_after(chunks_end, block_bytes),
            ),
            Compression::Lz4 | Compression::Zstd => (handle.offset == chunks_end, chunks_end),
        };
        if !is_start {
            return Err(damaged(format!("starts there, expected at {expected}")));
        }
        let mut last = previous;
        if last.is_none() {
            last = listed.before.map(|(key, seq)| (key.to_vec(), seq));
        }
        let mut key = Vec::new();
        let mut tag = None;
        for place in 0..block.len() {
            let entry = block.entry(place, &mut key).map_err(damaged)?;
            let mut new_key = true;
            if let Some((last_key, seq)) = &last {
                if !internal_cmp(last_key, *seq, &key, entry.seq).is_lt() {
                    return Err(damaged(format!("entry {place} is out of order")));
                }
                new_key = *last_key != key;
            }
            if entry.kind == EntryKind::RangeDelete || !self.table.inside(&key, entry.seq) {
                return Err(damaged(format!("entry {place} is out of the table's bounds")));
            }
            if new_key {
                let last_key = last.as_ref().map(|(key, _)| &key[..]);
                if let Some(prefix) = self.new_prefix(last_key, &key) {
                    self.seen.prefixes += 1;
                    self.ask_filter(self.table.digest.digest(prefix), "prefix", prefix);
                }
            }
            if new_key || tag.is_none() {
                let digest = self.table.digest.digest(&key);
                tag = Some(digest.block_tag());
                self.ask_filter(digest, "key", &key);
            }
            if tag.is_some_and(|tag| !block.tag_agrees(place, tag)) {
                return Err(damaged(format!("the tag of entry {place} is not that of its key")));
            }
            self.seen.keys += u64::from(new_key);
            self.seen.count(&key, entry.kind);
            let of_entry = |detail| damaged(format!("entry {place}: {detail}"));
            if entry.kind.has_expiry() {
                check_expiry(loaded, entry.value).map_err(of_entry)?;
                let value_bytes = match entry.kind.is_large() {
                    true => loaded.large_value_bytes(entry.kind, entry.value)?,
                    false => entry.value.len() as u64,
                };
                self.seen.expiring.add(entry.kind, entry.value, key.len() as u64 + value_bytes);
            }
            match entry.kind {
                kind if kind.is_large() => self.value(&key, entry.seq, kind, entry.value)?,
                kind => {
                    if kind == EntryKind::Merge {
                        check_operand(loaded, entry.value).map_err(of_entry)?;
                    }
                    self.seen.value_bytes += entry.value.len() as u64;
                    self.seen.content.add(&key, entry.seq, kind, entry.value);
                }
            }
            let (last_key, last_seq) = last.get_or_insert_default();
            last_key.clone_from(&key);
            *last_seq = entry.seq;
        }
        if let Some((key, seq)) = &last {
            if let Some((separator, separator_seq)) = listed.separator {
                if internal_cmp(key, *seq, separator, separator_seq).is_gt() {
                    return Err(damaged("its last entry is beyond its separator".to_owned()));
                }
            }
        }
        self.seen.last = last;
        Ok(chunks_end)
    }

    /// The prefix of `key` if the filter holds it in addition to the keys, and `last_key`, the key
    /// before, has another one.
    fn new_prefix<'k>(&self, last_key: Option<&[u8]>, key: &'k [u8]) -> Option<&'k [u8]> {
        let extractor = self.table.loaded.properties.prefix?;
        let prefix = extractor.of(key)?;
        let is_new = last_key.and_then(|last| extractor.of(last)) != Some(prefix);
        (is_new && prefix.len() < key.len()).then_some(prefix)
    }

    /// Asks the filter for a key or prefix of the table, which it must not deny.
    fn ask_filter(&mut self, digest: KeyDigest, kind: &str, name: &[u8]) {
        let is_denied = self.filter.as_ref().is_some_and(|filter| !filter.may_contain(digest));
        if is_denied && self.denials.len() < DENIALS_MAX {
            let loaded = self.table.loaded;
            let offset = loaded.footer.section(SectionKind::Filter).map_or(0, |section| section.offset);
            let detail = format!("it denies the {kind} \"{}\"", name.escape_ascii());
            self.denials.push(loaded.file.damaged(offset, WRONG_FILTER, detail));
        }
    }

    fn totals(&mut self) {
        let (loaded, seen, damage) = (self.table.loaded, &self.seen, &mut self.damage);
        let properties = &loaded.properties;
        let offset = loaded.footer.section(SectionKind::Properties).map_or(0, |section| section.offset);
        let filter_keys = if properties.bits_per_key > 0.0 { seen.keys } else { 0 };
        for (name, found, stated) in [
            ("entries", seen.entries, properties.entries),
            ("deletes", seen.deletes, properties.deletes),
            ("filter_keys", filter_keys, properties.filter_keys),
            ("filter_prefixes", seen.prefixes, properties.filter_prefixes),
            ("keys", seen.keys, properties.keys.unwrap_or(seen.keys)),
            ("raw_key_bytes", seen.key_bytes, properties.raw_key_bytes),
            ("raw_value_bytes", seen.value_bytes, properties.raw_value_bytes),
        ] {
            if found != stated {
                let detail = format!("{name} is {stated}, found {found}");
                damage.push(loaded.file.damaged(offset, PROPERTIES, detail));
            }
        }
        let found = seen.expiring.entries(seen.key_bytes + seen.value_bytes);
        let stated = properties.expiring;
        if found != stated {
            let detail = format!("expiring entries are {stated:?}, found {found:?}");
            damage.push(loaded.file.damaged(offset, PROPERTIES, detail));
        }
        let found = seen.uses.iter().map(|(file, (values, bytes))| (*file, *values, *bytes));
        let stated = properties.value_files.iter().map(|one| (one.file, one.values, one.bytes));
        if !found.eq(stated) {
            let detail = "the references to value files are not those of the entries";
            damage.push(loaded.file.damaged(offset, PROPERTIES, detail));
        }
        if seen.content != properties.content {
            let detail = "the content digest is not that of the entries";
            damage.push(loaded.file.damaged(offset, PROPERTIES, detail));
        }
    }
}

/// End of the chunks of a block's values: from `next` on they are contiguous, in the order of
/// the entries.
pub(super) fn chunks_end(loaded: &Loaded, block: DataBlock<'_>, handle: Handle, next: u64) -> Result<u64> {
    let mut end = next;
    let mut key = Vec::new();
    for place in 0..block.len() {
        let entry = block
            .entry(place, &mut key)
            .map_err(|detail| loaded.file.damaged(handle.offset, DATA_BLOCK, detail))?;
        if !entry.kind.is_large() || entry.kind.in_value_file() {
            continue;
        }
        let reference = loaded.value_ref(entry.kind.location(entry.value))?;
        if reference.offset != end || reference.end() > handle.offset {
            let (start, bytes) = (reference.offset, reference.stored_bytes);
            let detail = format!("{bytes} bytes at {start}, expected at {end} and before {}", handle.offset);
            return Err(loaded.file.damaged(handle.offset, VALUE_REFERENCE, detail));
        }
        end = reference.end();
    }
    Ok(end)
}

/// Checks the value of an entry that is an operand, and that the table states that it has operands:
/// a build that does not know them must refuse the whole table.
fn check_operand(loaded: &Loaded, stored: &[u8]) -> std::result::Result<(), String> {
    Operand::decode(stored)?;
    if loaded.has_operands() {
        return Ok(());
    }
    Err("an operand in a table whose footer states none".to_owned())
}

/// Checks that an entry with an expiry has one, and that the table states that it has such entries.
fn check_expiry(loaded: &Loaded, payload: &[u8]) -> std::result::Result<(), String> {
    _ = Expiry::split(payload)?;
    if loaded.has_expiry() {
        return Ok(());
    }
    Err("an expiry time in a table whose footer states none".to_owned())
}

/// Checks that the gap before a block is zero.
pub(super) fn check_padding(loaded: &Loaded, start: u64, next: Handle) -> Result<()> {
    let bytes = loaded.file.read(start, next.offset.saturating_sub(start), PADDING)?;
    match bytes.iter().position(|byte| *byte != 0) {
        None => Ok(()),
        Some(at) => {
            let detail = format!("byte {} is {:#04x}, expected 0", start + at as u64, bytes[at]);
            Err(loaded.file.damaged(start, PADDING, detail))
        }
    }
}

/// Totals of the data checked so far.
#[derive(Default)]
struct Seen {
    last: Option<(Vec<u8>, SeqNo)>,
    entries: u64,
    deletes: u64,
    keys: u64,
    prefixes: u64,
    key_bytes: u64,
    value_bytes: u64,
    content: ContentDigest,
    expiring: ExpiryTimes,
    /// References to each value file: values, and bytes of their chunks.
    uses: BTreeMap<ValueFileId, (u64, u64)>,
}

impl Seen {
    /// Counts an entry, without its value.
    fn count(&mut self, key: &[u8], kind: EntryKind) {
        self.entries += 1;
        self.deletes += u64::from(kind == EntryKind::Delete);
        self.key_bytes += key.len() as u64;
    }
}

fn keep(damage: &mut Vec<Error>, result: Result<()>) {
    damage.extend(result.err());
}

fn same(same: bool, error: impl FnOnce() -> Error) -> Result<()> {
    if same { Ok(()) } else { Err(error()) }
}
