//! Loading: reads and checks the parts of a table that are held in memory while it is open.
//!
//! The order is header, dictionary, footer, properties, index, range tombstones, the filter's
//! geometry; each is checked by its checksum and against the parts read before it. The first damage
//! ends loading, except in the filter, which the answers do not depend on.

use std::sync::Arc;

use crate::block::frame::FRAME_BYTES;
use crate::compression::{Compression, DICTIONARY_BYTES_MAX, Dictionary, ZSTD_IS_MISSING};
use crate::file::TableFile;
use crate::filter_section::StoredFilter;
use crate::format::footer::{self, Footer};
use crate::format::header::{self, Header};
use crate::format::properties::Properties;
use crate::format::{
    FEATURE_EXPIRY, FEATURE_OPERANDS, FEATURE_VALUE_FILES, FOOTER_BYTES, HEADER_BYTES, Section, SectionKind,
};
use crate::id::BirthId;
use crate::index::{Index, StoredIndex};
use crate::ledger::Ledger;
use crate::range::{self, RangeTombstone};
use crate::residency::Residency;
use crate::value_file::ValueFile;
use crate::{Error, Result};

/// Name of the properties in errors.
pub(crate) const PROPERTIES: &str = "properties";
/// Name of the dictionary in errors.
const DICTIONARY: &str = "dictionary";
/// Name of a data block in errors.
pub(super) const DATA_BLOCK: &str = "data block";
/// Name of the range tombstones in errors.
pub(crate) const RANGE_TOMBSTONES: &str = "range tombstones";

/// The parts of an open table that are in memory.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) file: TableFile,
    pub(crate) header: Header,
    /// The dictionary that its data blocks were compressed with, if any.
    pub(crate) dictionary: Option<Dictionary>,
    pub(crate) footer: Footer,
    pub(crate) properties: Properties,
    pub(crate) index: Index,
    pub(crate) tombstones: Vec<RangeTombstone>,
    /// `None`: the table has no filter, or its geometry is damaged.
    pub(crate) filter: Option<StoredFilter>,
    pub(crate) filter_damage: Option<Error>,
    /// The value files that the properties name, in their order; empty if the table was opened
    /// without them.
    pub(crate) value_files: Vec<Arc<ValueFile>>,
}

impl Loaded {
    /// Whether the data section has operands of merge operators.
    pub(crate) fn has_operands(&self) -> bool {
        self.footer.required & FEATURE_OPERANDS != 0
    }

    /// Whether entries of the table may expire.
    pub(crate) fn has_expiry(&self) -> bool {
        self.footer.required & FEATURE_EXPIRY != 0
    }
}

/// Loads the table in `file`, whose birth id must be `birth` if one is given. The index has the
/// residency mode `hold` and is charged to `ledger`.
pub(crate) fn load(
    mut file: TableFile,
    birth: Option<BirthId>,
    hold: Residency,
    ledger: &Arc<Ledger>,
) -> Result<Loaded> {
    let header = load_header(&file, birth)?;
    file.birth = header.birth;
    let dictionary = load_dictionary(&file, header.dictionary_frame_bytes)?;
    let footer = load_footer_of(&file, &header)?;
    let mut properties = load_properties(&file, &footer)?;
    let index = load_index(&file, &footer, &properties, hold, ledger)?;
    properties.partitions = Vec::new();
    let tombstones = load_tombstones(&file, &footer, &properties)?;
    let (filter, filter_damage) = match footer.section(SectionKind::Filter) {
        Some(section) => match StoredFilter::load(&file, section) {
            Ok(filter) => (Some(filter), None),
            Err(error) if error.is_corruption() => (None, Some(error)),
            Err(error) => return Err(error),
        },
        None => (None, None),
    };
    let value_files = Vec::new();
    Ok(Loaded {
        file,
        header,
        dictionary,
        footer,
        properties,
        index,
        tombstones,
        filter,
        filter_damage,
        value_files,
    })
}

/// Loads the dictionary whose frame of `frame_bytes` follows the header page; `None` if that is 0:
/// the table has none.
pub(crate) fn load_dictionary(file: &TableFile, frame_bytes: u32) -> Result<Option<Dictionary>> {
    if frame_bytes == 0 {
        return Ok(None);
    }
    let offset = HEADER_BYTES as u64;
    if frame_bytes as usize > DICTIONARY_BYTES_MAX + FRAME_BYTES {
        let detail = format!("a frame of {frame_bytes} bytes, at most {DICTIONARY_BYTES_MAX} expected");
        return Err(file.damaged(offset, DICTIONARY, detail));
    }
    if !Compression::Zstd.is_built() {
        return Err(Error::unsupported(&file.path, ZSTD_IS_MISSING));
    }
    let bytes = file.payload(offset, frame_bytes.into(), DICTIONARY)?;
    Ok(Some(Dictionary::new(&bytes)))
}

pub(crate) fn load_header(file: &TableFile, birth: Option<BirthId>) -> Result<Header> {
    let page = file.read(0, file.bytes.min(HEADER_BYTES as u64), header::STRUCTURE)?;
    let header = Header::decode(&file.path, &page)?;
    match birth {
        Some(expected) if expected != header.birth => Err(file.damaged(
            0,
            header::STRUCTURE,
            format!("birth id {}, expected {expected}: the file was swapped for another", header.birth),
        )),
        _ => Ok(header),
    }
}

/// [`load_footer`], whose sections must begin where the header and its dictionary end.
pub(crate) fn load_footer_of(file: &TableFile, header: &Header) -> Result<Footer> {
    let footer = load_footer(file)?;
    if footer.start != header.end() {
        let detail = format!("the first section is at {}, expected at {}", footer.start, header.end());
        return Err(file.damaged(file.bytes.saturating_sub(FOOTER_BYTES as u64), footer::STRUCTURE, detail));
    }
    Ok(footer)
}

pub(crate) fn load_footer(file: &TableFile) -> Result<Footer> {
    let offset = file.bytes.saturating_sub(FOOTER_BYTES as u64);
    if offset < HEADER_BYTES as u64 {
        let detail = format!("the file ends after {} bytes", file.bytes);
        return Err(file.damaged(offset, footer::STRUCTURE, detail));
    }
    let bytes = file.read(offset, FOOTER_BYTES as u64, footer::STRUCTURE)?;
    Footer::decode(&file.path, file.birth, offset, &bytes)
}

pub(crate) fn load_properties(file: &TableFile, footer: &Footer) -> Result<Properties> {
    let section = required(file, footer, SectionKind::Properties)?;
    let payload = file.payload(section.offset, section.bytes, PROPERTIES)?;
    let properties =
        Properties::decode(payload).map_err(|detail| file.damaged(section.offset, PROPERTIES, detail))?;
    check_is_readable(file, &properties)?;
    // One without the other would let a reader that does not know references open the table.
    if properties.value_files.is_empty() != (footer.required & FEATURE_VALUE_FILES == 0) {
        let detail = "property value_files and its required feature differ";
        return Err(file.damaged(section.offset, PROPERTIES, detail));
    }
    Ok(properties)
}

/// Refuses a table whose blocks this build cannot decompress.
pub(crate) fn check_is_readable(file: &TableFile, properties: &Properties) -> Result<()> {
    if !properties.compression.is_built() {
        return Err(Error::unsupported(&file.path, ZSTD_IS_MISSING));
    }
    Ok(())
}

fn load_index(
    file: &TableFile,
    footer: &Footer,
    properties: &Properties,
    hold: Residency,
    ledger: &Arc<Ledger>,
) -> Result<Index> {
    if properties.entries == 0 && footer.section(SectionKind::Data).is_none() {
        return Ok(Index::default());
    }
    let stored = StoredIndex {
        top: required(file, footer, SectionKind::IndexTop)?,
        partitions: required(file, footer, SectionKind::Index)?,
        data: required(file, footer, SectionKind::Data)?,
        summaries: &properties.partitions,
        blocks: properties.data_blocks,
        entries: properties.entries,
    };
    let index = Index::load(file, &stored, hold, ledger)?;
    debug_assert!(
        index.partitions() <= index.len(),
        "{} partitions list {} blocks",
        index.partitions(),
        index.len()
    );
    Ok(index)
}

pub(crate) fn load_tombstones(
    file: &TableFile,
    footer: &Footer,
    properties: &Properties,
) -> Result<Vec<RangeTombstone>> {
    let (offset, tombstones) = match footer.section(SectionKind::RangeTombstones) {
        None => (0, Vec::new()),
        Some(section) => {
            let payload = file.payload(section.offset, section.bytes, RANGE_TOMBSTONES)?;
            let tombstones = range::decode(payload)
                .map_err(|detail| file.damaged(section.offset, RANGE_TOMBSTONES, detail))?;
            (section.offset, tombstones)
        }
    };
    if tombstones.len() as u64 != properties.range_deletes {
        let detail = format!("{} of them, the properties say {}", tombstones.len(), properties.range_deletes);
        return Err(file.damaged(offset, RANGE_TOMBSTONES, detail));
    }
    Ok(tombstones)
}

fn required(file: &TableFile, footer: &Footer, kind: SectionKind) -> Result<Section> {
    footer.section(kind).ok_or_else(|| {
        let offset = file.bytes.saturating_sub(FOOTER_BYTES as u64);
        file.damaged(offset, footer::STRUCTURE, format!("there is no section of {kind}"))
    })
}
