//! Salvage: reading the undamaged parts of a damaged table.
//!
//! [`crate::TableReader`] refuses a file if any structure that it holds in memory is damaged.
//! `Salvage` reads each structure separately: a structure with a valid checksum is used, whatever
//! the state of the others. Without the index, or where a partition of it is damaged, data blocks
//! are [searched](find) in the bytes; without the footer, properties and range tombstones are
//! searched. All that is used has a valid checksum, salted with the file's birth id and the offset,
//! so nothing is invented.
//!
//! [`Salvage::walk`] returns the remaining entries in order, and the [gaps](Gap) between them. It
//! holds one block, one partition's list, the list of partitions, and, while it searches, a part of
//! the file. The cost of a search is linear in the file's length, whatever its content.
//!
//! Not here: which tables are needed, and the use of the entries (the engine's repair).

mod find;
mod walk;

#[cfg(test)]
pub(crate) use self::find::{ALLOWED_FIRST, ALLOWED_PER_BYTE};
pub use self::walk::{Gap, SalvageWalk, SalvagedEntry};

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use shamba_env::Env;
use shamba_key::SeqNo;

use crate::block::Block;
use crate::checksum::checksum;
use crate::compression::Dictionary;
use crate::counters::Reads;
use crate::file::TableFile;
use crate::files::OpenFiles;
use crate::filter_section::StoredFilter;
use crate::format::footer::Footer;
use crate::format::header::{self, Header};
use crate::format::origin::Origin;
use crate::format::properties::Properties;
use crate::format::{FOOTER_BYTES, HEADER_BYTES, Section, SectionKind};
use crate::id::BirthId;
use crate::index::{self, Handle};
use crate::range::{self, RangeTombstone};
use crate::reader::load::{check_is_readable, load_dictionary};
use crate::reader::{PROPERTIES, RANGE_TOMBSTONES, load_footer, load_footer_of};
use crate::value_uses::TableValueUse;
use crate::values::{self, ValueRef};
use crate::{Error, Result};

/// Offset of the birth id in the header page.
const BIRTH_AT: usize = 32;

/// A table that may be damaged.
#[derive(Debug)]
pub struct Salvage {
    file: TableFile,
    properties: Option<Properties>,
    origin: Option<Origin>,
    /// The section with blocks and chunks, as far as it is known.
    data: Section,
    dictionary: Option<Dictionary>,
    /// The partitions in the index's top level; `None` without one.
    partitions: Option<Vec<ListedPartition>>,
    tombstones: Vec<RangeTombstone>,
    lost_tombstones: Option<Error>,
    damage: Vec<Error>,
}

/// A partition as the top level lists it.
#[derive(Clone, Debug)]
struct ListedPartition {
    handle: Handle,
    last: (Bytes, SeqNo),
}

impl Salvage {
    /// Opens the table at `path`, whose birth id must be `birth` if one is given.
    ///
    /// # Errors
    /// `Io` when the file cannot be opened or read; `Unsupported` for an undamaged file of a newer
    /// version; `Corruption` for a file with another birth id, and for one whose birth id is
    /// unreadable if none is given.
    pub fn open(env: &Env, path: &Path, files: &Arc<OpenFiles>, birth: Option<BirthId>) -> Result<Self> {
        let file = TableFile::open(&env.vfs, path, false, files)?;
        let mut damage = Vec::new();
        let (file, header) = know_birth(file, birth, &mut damage)?;
        let footer = header.map_or_else(|| load_footer(&file), |header| load_footer_of(&file, &header));
        let footer = match footer {
            Ok(footer) => Some(footer),
            // Its checksum was valid.
            Err(error @ Error::Unsupported { .. }) => return Err(error),
            Err(error) => kept(Err(error), &mut damage)?,
        };
        // Without the header the dictionary is what lies before the first section.
        let start = header.map(|header| header.end()).or(footer.as_ref().map(|footer| footer.start));
        let start = start.unwrap_or(HEADER_BYTES as u64);
        let dictionary_bytes = u32::try_from(start - HEADER_BYTES as u64).unwrap_or(u32::MAX);
        let dictionary = match load_dictionary(&file, dictionary_bytes) {
            Err(error @ Error::Unsupported { .. }) => return Err(error),
            read => kept(read, &mut damage)?.flatten(),
        };
        let mut found = Self {
            data: data_section(&file, footer.as_ref(), start),
            dictionary,
            file,
            properties: None,
            origin: None,
            partitions: None,
            tombstones: Vec::new(),
            lost_tombstones: None,
            damage,
        };
        match footer {
            Some(footer) => found.read_sections(&footer)?,
            None => found.find_sections()?,
        }
        Ok(found)
    }

    fn read_sections(&mut self, footer: &Footer) -> Result<()> {
        let mut damage = std::mem::take(&mut self.damage);
        match footer.section(SectionKind::Properties) {
            Some(section) => {
                let read = self.file.payload(section.offset, section.bytes, PROPERTIES).and_then(|payload| {
                    self.origin = Origin::decode(payload.clone());
                    Properties::decode(payload)
                        .map_err(|detail| self.file.damaged(section.offset, PROPERTIES, detail))
                });
                self.properties = kept(read, &mut damage)?;
                if let Some(properties) = &self.properties {
                    check_is_readable(&self.file, properties)?;
                }
            }
            None => damage.push(self.file.damaged(self.end(), PROPERTIES, "there is no section of them")),
        }
        if let Some(section) = footer.section(SectionKind::RangeTombstones) {
            let read = self.read_tombstones(section.offset, section.bytes);
            match read {
                Ok(tombstones) => self.tombstones = tombstones,
                Err(error) => self.lost_tombstones = Some(corrupt(error)?),
            }
        }
        if let Some(top) = footer.section(SectionKind::IndexTop) {
            let partitions = footer.section(SectionKind::Index);
            let read = self.read_top(top, partitions.unwrap_or(Section { bytes: 0, ..top }));
            self.partitions = kept(read, &mut damage)?;
        } else if footer.section(SectionKind::Data).is_none() {
            self.partitions = Some(Vec::new());
        }
        if let Some(section) = footer.section(SectionKind::Filter) {
            if let Some(filter) = kept(StoredFilter::load(&self.file, section), &mut damage)? {
                let found = kept(filter.verify(&self.file), &mut damage)?;
                damage.extend(found.into_iter().flatten());
            }
        }
        self.damage = damage;
        Ok(())
    }

    /// Searches the sections without a footer: the properties end where the footer begins, and the
    /// range tombstones where the properties begin.
    fn find_sections(&mut self) -> Result<()> {
        let end = self.end();
        let properties = find::frame_before(&self.file, end, None, |payload| {
            Properties::decode(payload.clone()).ok().map(|properties| (properties, Origin::decode(payload)))
        })?;
        let missing =
            |what: &'static str| self.file.damaged(end, what, "it cannot be found without a footer");
        let Some((at, (properties, origin))) = properties else {
            self.lost_tombstones = Some(missing(RANGE_TOMBSTONES));
            self.damage.push(missing(PROPERTIES));
            return Ok(());
        };
        check_is_readable(&self.file, &properties)?;
        if properties.range_deletes > 0 {
            let count = properties.range_deletes;
            let tombstones = find::frame_before(&self.file, at, Some(count), |payload| {
                range::decode(payload).ok().filter(|found| found.len() as u64 == count)
            })?;
            match tombstones {
                Some((_, tombstones)) => self.tombstones = tombstones,
                None => self.lost_tombstones = Some(missing(RANGE_TOMBSTONES)),
            }
        }
        if properties.entries == 0 {
            self.partitions = Some(Vec::new());
        }
        (self.properties, self.origin) = (Some(properties), origin);
        Ok(())
    }

    fn read_tombstones(&self, offset: u64, bytes: u64) -> Result<Vec<RangeTombstone>> {
        let payload = self.file.payload(offset, bytes, RANGE_TOMBSTONES)?;
        range::decode(payload).map_err(|detail| self.file.damaged(offset, RANGE_TOMBSTONES, detail))
    }

    fn read_top(&self, top: Section, section: Section) -> Result<Vec<ListedPartition>> {
        let damaged = |detail: String| self.file.damaged(top.offset, index::TOP, detail);
        let listed = Block::parse(self.file.payload(top.offset, top.bytes, index::TOP)?).map_err(damaged)?;
        let handles = index::listed_partitions(&listed, section).map_err(damaged)?;
        let partition = |(handle, last): (Handle, crate::block::EntryRef<'_>)| ListedPartition {
            handle,
            last: (Bytes::copy_from_slice(last.key), last.seq),
        };
        Ok(handles.into_iter().zip(listed.entries()).map(partition).collect())
    }

    /// Offset of the footer, present or not.
    fn end(&self) -> u64 {
        self.file.bytes.saturating_sub(FOOTER_BYTES as u64)
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Length of the file, in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.file.bytes
    }

    /// The birth id of the file.
    pub fn birth(&self) -> BirthId {
        self.file.birth
    }

    /// The keyspace that the table was written for, if it is recorded.
    pub fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// The first key of any entry or range tombstone and the exclusive upper bound, if the
    /// properties are readable.
    pub fn bounds(&self) -> Option<(&Bytes, Option<&Bytes>)> {
        self.properties.as_ref().map(|properties| (&properties.smallest, properties.upper.as_ref()))
    }

    /// The smallest and the largest sequence number in it, if the properties are readable.
    pub fn seqs(&self) -> Option<RangeInclusive<SeqNo>> {
        self.properties.as_ref().map(|properties| properties.smallest_seq..=properties.largest_seq)
    }

    /// References to value files, if the properties are readable. Only with them is the birth id
    /// of a value file known without the manifest.
    pub fn value_uses(&self) -> &[TableValueUse] {
        self.properties.as_ref().map_or(&[], |properties| &properties.value_files)
    }

    /// The readable range tombstones: all of them, or none.
    pub fn range_tombstones(&self) -> &[RangeTombstone] {
        &self.tombstones
    }

    /// The reason why the range tombstones are unreadable, or why it is unknown whether there are
    /// any.
    pub fn lost_tombstones(&self) -> Option<&Error> {
        self.lost_tombstones.as_ref()
    }

    /// Damage outside data and range tombstones: header, dictionary, footer, properties, index's
    /// top level, filter.
    pub fn damage(&self) -> &[Error] {
        &self.damage
    }

    /// Iterates over the remaining entries.
    pub fn walk(self: &Arc<Self>) -> SalvageWalk {
        self.walk_within(find::READ_BYTES)
    }

    /// [`Self::walk`] that, while it searches, holds at most `kept_bytes` of the file between two
    /// blocks.
    pub fn walk_within(self: &Arc<Self>, kept_bytes: usize) -> SalvageWalk {
        SalvageWalk::new(Arc::clone(self), kept_bytes.min(find::READ_BYTES))
    }

    /// The value that `reference`, the location of a large entry of this table, refers to. Not for
    /// values in value files.
    ///
    /// # Errors
    /// `Io` or `Corruption` from reading.
    pub fn read_large(&self, reference: &[u8]) -> Result<Vec<u8>> {
        let mut value = Vec::new();
        values::read(&self.file, self.value_ref(reference)?, &mut Reads::default(), &mut |piece| {
            value.extend_from_slice(piece?);
            Ok(())
        })?;
        Ok(value)
    }

    fn value_ref(&self, reference: &[u8]) -> Result<ValueRef> {
        ValueRef::decode(reference, self.data).map_err(|detail| {
            let offset = reference.first_chunk().map_or(0, |offset| u64::from_le_bytes(*offset));
            self.file.damaged(offset, values::VALUE_REFERENCE, detail)
        })
    }
}

/// All damage of the table at `path` that one pass can distinguish, and the number of remaining
/// entries.
///
/// # Errors
/// As [`Salvage::open`].
pub fn survey_damage(
    env: &Env,
    path: &Path,
    files: &Arc<OpenFiles>,
    birth: Option<BirthId>,
) -> Result<(Vec<Error>, u64)> {
    let mut table = Salvage::open(env, path, files, birth)?;
    let mut damage = std::mem::take(&mut table.damage);
    damage.extend(table.lost_tombstones.take());
    let mut walk = Arc::new(table).walk();
    let entries = walk.look_through(&mut damage)?;
    damage.extend(walk.take_gaps().into_iter().map(|gap| gap.error));
    Ok((damage, entries))
}

/// Sets the file's birth id, with which its checksums are salted; also returns the header if it is
/// readable.
fn know_birth(
    mut file: TableFile,
    birth: Option<BirthId>,
    damage: &mut Vec<Error>,
) -> Result<(TableFile, Option<Header>)> {
    // Without a page the header is damaged.
    let page = kept(file.read(0, file.bytes.min(HEADER_BYTES as u64), header::STRUCTURE), damage)?;
    let page = page.unwrap_or_default();
    let stated = page.get(BIRTH_AT..).and_then(<[u8]>::first_chunk);
    let stated = stated.map(|birth| BirthId(u64::from_le_bytes(*birth)));
    match Header::decode(&file.path, &page) {
        Ok(header) => match birth {
            Some(expected) if expected != header.birth => {
                let detail = format!(
                    "birth id {}, expected {expected}: the file was swapped for another",
                    header.birth
                );
                Err(file.damaged(0, header::STRUCTURE, detail))
            }
            _ => {
                file.birth = header.birth;
                Ok((file, Some(header)))
            }
        },
        Err(error) => {
            // An unknown version is damage if the page's checksum does not match.
            let is_whole = page.split_last_chunk::<4>().zip(stated).is_some_and(|((covered, sum), birth)| {
                page.len() == HEADER_BYTES && checksum(birth, 0, covered) == u32::from_le_bytes(*sum)
            });
            if is_whole && matches!(error, Error::Unsupported { .. }) {
                return Err(error);
            }
            let Some(known) = birth.or(stated) else { return Err(error) };
            file.birth = known;
            damage.push(error);
            Ok((file, None))
        }
    }
}

/// The data section; without a footer, all from `offset` on.
fn data_section(file: &TableFile, footer: Option<&Footer>, offset: u64) -> Section {
    let nothing = Section { kind: SectionKind::Data, offset, bytes: 0 };
    match footer {
        Some(footer) => footer.section(SectionKind::Data).unwrap_or(nothing),
        None => Section { bytes: file.bytes.saturating_sub(offset), ..nothing },
    }
}

/// The result, or `None` after adding the damage to `damage`.
fn kept<T>(read: Result<T>, damage: &mut Vec<Error>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) => {
            damage.push(corrupt(error)?);
            Ok(None)
        }
    }
}

/// Returns damage as a value; passes other errors on. Bytes that the device cannot read are
/// damaged, too.
fn corrupt(error: Error) -> Result<Error> {
    let is_damage = error.is_corruption() || error.is_unreadable();
    if is_damage || matches!(error, Error::Unsupported { .. }) { Ok(error) } else { Err(error) }
}
