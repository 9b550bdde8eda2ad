//! The filter's section: its geometry, then its slices, each with its own checksum.
//!
//! ```text
//! +----------+---------------+---------+---------------+-----+---------+---------------+
//! | geometry | checksum  u32 | slice 0 | checksum  u32 | ... | slice n | checksum  u32 |
//! +----------+---------------+---------+---------------+-----+---------+---------------+
//!  0          8 per module
//! ```
//!
//! The slices of a module have equal length, and those of the first module come first. So the place
//! of a slice is computed ([`StoredFilter::place_of`]), and it is read on its own. Checksums are
//! salted with the birth id and the offset of the covered bytes. A damaged slice is left out: its
//! keys "may be contained". If the geometry is damaged, the whole filter is left out. Answers stay
//! correct either way.
//!
//! Not here: the bits ([`shamba_filter::Filter`]); which slices are in memory ([`crate::reader`],
//! `filter.rs`).

use std::io::ErrorKind;

use bytes::Bytes;
use shamba_env::Pages;
use shamba_filter::{Filter, FilterGeometry, Line, MAX_MODULES};

use crate::checksum::checksum;
use crate::file::TableFile;
use crate::format::Section;
use crate::id::BirthId;
use crate::{Error, Result};

pub(crate) const CHECKSUM_BYTES: usize = 4;
/// Length of the longest geometry with its checksum.
const HEAD_BYTES: usize = MAX_MODULES * FilterGeometry::ENCODED_MODULE_BYTES + CHECKSUM_BYTES;
/// The geometry's name in errors.
pub(crate) const GEOMETRY: &str = "filter geometry";
/// A slice's name in errors.
pub(crate) const SLICE: &str = "filter slice";

/// A filter in its file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredFilter {
    pub(crate) geometry: FilterGeometry,
    /// Offset of the first slice.
    slices_at: u64,
}

/// Place of a slice, without its checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlicePlace {
    number: usize,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

/// Writes the section of `filter`, which starts at `offset`, piece by piece.
pub(crate) fn write(
    filter: &Filter,
    birth: BirthId,
    offset: u64,
    mut write: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut at = offset;
    let mut piece = |bytes: &[u8]| {
        write(bytes)?;
        write(&checksum(birth, at, bytes).to_le_bytes())?;
        at += (bytes.len() + CHECKSUM_BYTES) as u64;
        Ok(())
    };
    piece(&filter.geometry().encode())?;
    filter.slices().try_for_each(|(_, slice)| piece(slice))
}

impl StoredFilter {
    /// Loads the filter in `section`: reads its geometry.
    ///
    /// # Errors
    /// `Corruption` for damage to the geometry, without which there is no filter; `Io` when reading
    /// fails.
    pub(crate) fn load(file: &TableFile, section: Section) -> Result<Self> {
        let damaged = |detail: String| file.damaged(section.offset, GEOMETRY, detail);
        // The maximum length of a geometry, so that one read suffices.
        let head = file.read(section.offset, section.bytes.min(HEAD_BYTES as u64), GEOMETRY)?;
        let geometry_bytes = FilterGeometry::encoded_bytes(&head).map_err(damaged)?;
        let first_bytes = (geometry_bytes + CHECKSUM_BYTES) as u64;
        if section.bytes < first_bytes {
            return Err(damaged(format!("{} bytes are too short for a filter", section.bytes)));
        }
        let (geometry, stated) = head.split_at_checked(geometry_bytes).unwrap_or_default();
        check(file, section.offset, geometry, stated).map_err(damaged)?;
        let geometry = FilterGeometry::decode(geometry).map_err(damaged)?;
        let expected = geometry.total_bytes() + (geometry.slices() * CHECKSUM_BYTES) as u64;
        let found = section.bytes - first_bytes;
        if found != expected {
            return Err(damaged(format!("{found} bytes of slices, expected {expected}")));
        }
        debug_assert_eq!(
            section.offset + first_bytes + expected,
            section.end(),
            "slices of another length than checked"
        );
        Ok(Self { geometry, slices_at: section.offset + first_bytes })
    }

    /// The place of slice `number`; `None` past the last.
    pub(crate) fn place_of(&self, number: usize) -> Option<SlicePlace> {
        let mut offset = self.slices_at;
        let mut first = 0;
        for module in self.geometry.modules() {
            let (slices, bytes) = (module.slices(), module.slice_bytes());
            let stored_bytes = (bytes + CHECKSUM_BYTES) as u64;
            if let Some(within) = number.checked_sub(first).filter(|within| *within < slices) {
                return Some(SlicePlace { number, offset: offset + within as u64 * stored_bytes, bytes });
            }
            offset += slices as u64 * stored_bytes;
            first += slices;
        }
        None
    }

    /// Reads a slice and passes its bytes to `show` after the check.
    ///
    /// # Errors
    /// `Corruption` for a damaged slice; `Io` when reading fails.
    pub(crate) fn read_slice<T>(
        file: &TableFile,
        place: SlicePlace,
        show: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let look = |bytes: &[u8]| Self::check_slice(file, place, bytes).map(show);
        file.read_briefly(place.offset, place.bytes + CHECKSUM_BYTES, SLICE, look)?
    }

    /// Checks a slice that was read with its checksum, and returns its lines.
    ///
    /// # Errors
    /// `Corruption` for a damaged slice.
    pub(crate) fn check_slice<'s>(file: &TableFile, place: SlicePlace, stored: &'s [u8]) -> Result<&'s [u8]> {
        let (slice, stated) = stored.split_at_checked(place.bytes).unwrap_or_default();
        match check(file, place.offset, slice, stated) {
            Ok(()) => Ok(slice),
            Err(detail) => {
                Err(file.damaged(place.offset, SLICE, format!("slice {}: {detail}", place.number)))
            }
        }
    }

    /// Reads a slice into memory of its own, aligned like lines. An allocator would keep the memory
    /// of dropped slices: those that another thread reads later come from its own heap.
    ///
    /// # Errors
    /// As [`Self::read_slice`]; `Io` also if there is no memory.
    pub(crate) fn read_lines(file: &TableFile, place: SlicePlace) -> Result<Bytes> {
        let copied = Self::read_slice(file, place, |slice| {
            let mut pages = Pages::zeroed(slice.len(), size_of::<Line>())?;
            pages.copy_from_slice(slice);
            // A probe reads one line anywhere in a filter.
            pages.join_neighbours();
            Some(Bytes::from_owner(pages))
        })?;
        copied.ok_or_else(|| Error::io(&file.path, "hold a filter slice of", ErrorKind::OutOfMemory.into()))
    }

    /// Reads every slice and returns the damaged ones.
    ///
    /// # Errors
    /// `Io` when reading fails.
    pub(crate) fn verify(&self, file: &TableFile) -> Result<Vec<Error>> {
        let mut damage = Vec::new();
        for place in (0..self.geometry.slices()).filter_map(|number| self.place_of(number)) {
            match Self::read_slice(file, place, |_| ()) {
                Err(error @ Error::Corruption { .. }) => damage.push(error),
                read => read?,
            }
        }
        Ok(damage)
    }
}

/// Checks `bytes`, which lie at `offset`, against the checksum `stated`.
fn check(file: &TableFile, offset: u64, bytes: &[u8], stated: &[u8]) -> std::result::Result<(), String> {
    let stated = stated.first_chunk().map_or(0, |stated| u32::from_le_bytes(*stated));
    debug_assert!(offset <= file.bytes, "a slice at {offset} of a file of {}", file.bytes);
    let found = checksum(file.birth, offset, bytes);
    if found == stated { Ok(()) } else { Err(format!("checksum {found:08x}, expected {stated:08x}")) }
}
