//! A readable description of a table: the output of `shamba table FILE`.
//!
//! Needs nothing but the file, so it also reads tables that belong to no database; the birth id is
//! taken from the header unless the caller passes the expected one. Every data block is read, for
//! its compression and first key.
//!
//! Not here: the full check ([`crate::TableReader::verify`]).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use shamba_env::Env;
use shamba_filter::{FilterFamily, FilterGeometry, ModuleShape};
use shamba_key::{DigestKind, EntryKind, Prefix};

use crate::block::DataBlock;
use crate::compression::Compression;
use crate::file::TableFile;
use crate::files::OpenFiles;
use crate::format::{Section, VERSION};
use crate::id::{BirthId, TableId};
use crate::ledger::Ledger;
use crate::range::RangeTombstone;
use crate::reader::{ListedBlock, load};
use crate::residency::Residency;
use crate::summary::TableSummary;
use crate::value_uses::TableValueUse;
use crate::{Error, Result};

/// Maximum number of printed bytes of a key: a screen's width.
const SHOWN_KEY_BYTES: usize = 48;

/// Description of one data block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockDescription {
    /// Offset in the file.
    pub offset: u64,
    /// Length in the file, including compression byte and checksum.
    pub bytes: u64,
    /// Length of the decompressed payload.
    pub payload_bytes: u64,
    /// Number of entries.
    pub entries: u64,
    /// The key of its first entry.
    pub first_key: Bytes,
    /// Name of the block's layout.
    pub layout: &'static str,
    /// Compression of the block.
    pub compression: Compression,
}

/// Description of a table file.
#[derive(Clone, PartialEq, Debug)]
pub struct TableDescription {
    /// The file.
    pub path: PathBuf,
    /// Format version.
    pub version: u32,
    /// Optional feature bits.
    pub optional_features: u64,
    /// Number under which it was written; a linked file may have another name.
    pub table: TableId,
    /// The key hash.
    pub digest: DigestKind,
    /// The seed of the key hash.
    pub seed: u64,
    /// Counts, bounds and digest.
    pub summary: TableSummary,
    /// The requested compression.
    pub compression: Compression,
    /// Length of the dictionary, in bytes; 0: there is none.
    pub dictionary_bytes: u64,
    /// Maximum size of a block with several entries, in bytes.
    pub block_bytes: u32,
    /// The sections of the file.
    pub sections: Vec<Section>,
    /// The filter; `None` if there is none, or its geometry is damaged.
    pub filter: Option<FilterGeometry>,
    /// The extractor of the prefixes that the filter holds in addition to the keys.
    pub prefix: Option<Prefix>,
    /// Number of these prefixes.
    pub filter_prefixes: u64,
    /// Damage found in the filter.
    pub warnings: Vec<String>,
    /// The range tombstones.
    pub range_tombstones: Vec<RangeTombstone>,
    /// The data blocks.
    pub blocks: Vec<BlockDescription>,
    /// Number of large values.
    pub large_values: u64,
    /// Length of their chunks.
    pub large_value_bytes: u64,
    /// Number of operands of merge operators.
    pub operands: u64,
}

/// Describes the table at `path`.
///
/// # Errors
/// As [`crate::TableReader::open`] and for every data block: `Io`, `Unsupported`, `Corruption`.
pub fn describe(env: &Env, path: &Path, birth: Option<BirthId>) -> Result<TableDescription> {
    let file = TableFile::open(&env.vfs, path, false, &Arc::new(OpenFiles::new(1)))?;
    // Budgeted: one partition of the index in memory at a time.
    let loaded = load(file, birth, Residency::Budgeted, &Arc::new(Ledger::new()))?;
    let mut blocks = Vec::with_capacity(loaded.index.len());
    let (mut large_values, mut large_value_bytes, mut operands) = (0, 0, 0);
    let has_counted = loaded.has_values() || loaded.has_operands() || loaded.has_value_files();
    for number in 0..loaded.index.partitions() {
        let partition = loaded.partition(number)?;
        for ListedBlock { handle, .. } in loaded.blocks_of(number, &partition) {
            let bytes = loaded.file.read(handle.offset, u64::from(handle.bytes), "data block")?;
            let (payload, compression) = loaded.decode_block(handle, bytes)?;
            let damaged = |detail: String| loaded.file.damaged(handle.offset, "data block", detail);
            let block = DataBlock::view(&payload).map_err(damaged)?;
            let mut first_key = Vec::new();
            if block.len() > 0 {
                block.entry(0, &mut first_key).map_err(damaged)?;
            }
            let mut key = Vec::new();
            for place in (0..block.len()).take_while(|_| has_counted) {
                let entry = block.entry(place, &mut key).map_err(damaged)?;
                operands += u64::from(entry.kind == EntryKind::Merge);
                if entry.kind.in_value_file() {
                    loaded.file_ref(entry.kind.location(entry.value))?;
                } else if entry.kind.is_large() {
                    let reference = loaded.value_ref(entry.kind.location(entry.value))?;
                    large_values += 1;
                    large_value_bytes += u64::from(reference.stored_bytes);
                }
            }
            blocks.push(BlockDescription {
                offset: handle.offset,
                bytes: u64::from(handle.bytes),
                payload_bytes: payload.len() as u64,
                entries: u64::from(handle.entries),
                first_key: Bytes::from(first_key),
                layout: block.layout(),
                compression,
            });
        }
    }
    let properties = &loaded.properties;
    let mut damage: Vec<Error> = loaded.filter_damage.into_iter().collect();
    if let Some(filter) = &loaded.filter {
        damage.extend(filter.verify(&loaded.file)?);
    }
    Ok(TableDescription {
        path: path.to_path_buf(),
        version: VERSION,
        optional_features: loaded.header.optional,
        table: loaded.header.table,
        digest: loaded.footer.digest.kind(),
        seed: loaded.footer.digest.seed(),
        summary: TableSummary::of(loaded.header.table, loaded.header.birth, loaded.file.bytes, properties),
        compression: properties.compression,
        dictionary_bytes: loaded.dictionary.as_ref().map_or(0, |dictionary| dictionary.bytes().len()) as u64,
        block_bytes: properties.block_bytes,
        sections: loaded.footer.sections.clone(),
        filter: loaded.filter.map(|filter| filter.geometry),
        prefix: properties.prefix,
        filter_prefixes: properties.filter_prefixes,
        warnings: damage.iter().map(Error::to_string).collect(),
        range_tombstones: loaded.tombstones,
        blocks,
        large_values,
        large_value_bytes,
        operands,
    })
}

impl fmt::Display for TableDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let summary = &self.summary;
        writeln!(f, "table {} version {} birth {}", self.table, self.version, summary.birth)?;
        writeln!(f, "optional features {:#x}", self.optional_features)?;
        writeln!(f, "comparator bytewise, digest {} seed {:016x}", self.digest, self.seed)?;
        writeln!(f, "\nsections")?;
        for section in &self.sections {
            let (kind, offset, bytes) = (section.kind.name(), section.offset, section.bytes);
            writeln!(f, "  {kind:<18}{offset:>12}{bytes:>12}")?;
        }
        writeln!(f, "\nproperties")?;
        for (name, value) in self.properties() {
            writeln!(f, "  {name:<18}{value}")?;
        }
        for warning in &self.warnings {
            writeln!(f, "  warning: {warning}")?;
        }
        if !self.range_tombstones.is_empty() {
            writeln!(f, "\nrange tombstones")?;
        }
        for tombstone in &self.range_tombstones {
            let start = shown(&tombstone.start);
            match &tombstone.end {
                Some(end) => writeln!(f, "  [{start}, {}) at {}", shown(end), tombstone.seq)?,
                None => writeln!(f, "  [{start}, ) at {}", tombstone.seq)?,
            }
        }
        if !self.blocks.is_empty() {
            writeln!(f, "\n      offset     bytes   payload entries layout   compression first key")?;
        }
        for block in &self.blocks {
            let (compression, key) = (block.compression.name(), shown(&block.first_key));
            writeln!(
                f,
                "{:>12}{:>10}{:>10}{:>8} {:<8} {compression:<11} {key}",
                block.offset, block.bytes, block.payload_bytes, block.entries, block.layout
            )?;
        }
        Ok(())
    }
}

impl TableDescription {
    /// The properties as (name, text), in the order in which they are printed.
    fn properties(&self) -> Vec<(&'static str, String)> {
        let summary = &self.summary;
        let filter = self.filter.as_ref().map_or("none".to_owned(), filter_text);
        let mut properties = vec![
            ("file bytes", summary.file_bytes.to_string()),
            ("entries", summary.entries.to_string()),
            ("deletes", summary.deletes.to_string()),
            ("range deletes", summary.range_deletes.to_string()),
            ("key bytes", summary.raw_key_bytes.to_string()),
            ("value bytes", summary.raw_value_bytes.to_string()),
            ("smallest", shown(&summary.smallest)),
            ("upper", summary.upper.as_ref().map_or("none".to_owned(), |upper| shown(upper))),
            ("sequence numbers", format!("{} to {}", summary.smallest_seq, summary.largest_seq)),
            ("content", format!("{:032x}", summary.content.to_u128())),
            ("compression", self.compression.to_string()),
            ("block bytes", self.block_bytes.to_string()),
            ("bits per key", summary.bits_per_key.to_string()),
            ("filter", filter),
        ];
        if self.dictionary_bytes > 0 {
            properties.push(("dictionary bytes", self.dictionary_bytes.to_string()));
        }
        if let Some(prefix) = self.prefix {
            properties.push(("prefixes", format!("{} by {prefix}", self.filter_prefixes)));
        }
        if let Some(ms) = summary.oldest_tombstone_ms {
            properties.push(("oldest tombstone", format!("{ms} ms since 1970")));
        }
        if self.large_values > 0 {
            let text = format!("{} in {} bytes of chunks", self.large_values, self.large_value_bytes);
            properties.push(("large values", text));
        }
        for TableValueUse { file, birth, values, bytes } in summary.value_uses.iter() {
            properties
                .push(("value file", format!("{file}: {values} values of {bytes} bytes, birth {birth}")));
        }
        if let Some(expiring) = summary.expiring {
            let (count, first, last) = (expiring.count, expiring.first().0, expiring.last().0);
            properties.push(("expiring", format!("{count}, from {first} to {last} ms since 1970")));
        }
        if self.operands > 0 {
            properties.push(("operands", self.operands.to_string()));
        }
        properties
    }
}

/// Text such as `blocked, 6 probes, 1 slices of 64 bytes`; several modules are listed one by one.
fn filter_text(filter: &FilterGeometry) -> String {
    let module = |module: &ModuleShape| {
        let (probes, slices) = (module.probes(), module.slices());
        let of_key = if filter.family() == FilterFamily::Ribbon { "columns" } else { "probes" };
        format!("{probes} {of_key}, {slices} slices of {} bytes", module.slice_bytes())
    };
    let modules: Vec<String> = filter.modules().iter().map(module).collect();
    match &modules[..] {
        [only] => format!("{}, {only}", filter.family().name()),
        all => format!("{} of {} modules: {}", filter.family().name(), all.len(), all.join("; ")),
    }
}

/// A key in quotes, escaped, cut to a screen's width.
fn shown(key: &[u8]) -> String {
    match key.get(..SHOWN_KEY_BYTES) {
        Some(start) if start.len() < key.len() => {
            format!("\"{}\"... ({} bytes)", start.escape_ascii(), key.len())
        }
        _ => format!("\"{}\"", key.escape_ascii()),
    }
}
