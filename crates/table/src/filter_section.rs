//! The filter's section: its shape, then its slices, each with a checksum of its own.
//!
//! ```text
//! +-------+---------------+---------+---------------+-----+---------+---------------+
//! | shape | checksum  u32 | slice 0 | checksum  u32 | ... | slice n | checksum  u32 |
//! +-------+---------------+---------+---------------+-----+---------+---------------+
//!  0       8               12
//! ```
//!
//! Checksums are salted with birth id and the offset of what they cover. Damage to a slice takes that slice
//! away and nothing else: its keys "may be contained". Damage to the shape takes the whole filter away. The
//! answers stay right either way, so loading gives warnings, not errors.
//!
//! Not here: the bits ([`shamba_filter::BlockedFilter`]).

use shamba_filter::{BlockedFilter, FilterShape};

use crate::checksum::checksum;
use crate::error::{Error, Result};
use crate::format::Section;
use crate::id::BirthId;
use crate::reader::TableFile;

const SHAPE_BYTES: usize = FilterShape::ENCODED_BYTES;
const CHECKSUM_BYTES: usize = 4;
/// The shape as it is named in errors.
pub(crate) const SHAPE: &str = "filter shape";
/// A slice as it is named in errors.
pub(crate) const SLICE: &str = "filter slice";

/// Writes the section of `filter`, which starts at `offset`, piece by piece.
pub(crate) fn write(
    filter: &BlockedFilter,
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
    piece(&filter.shape().encode())?;
    filter.slices().try_for_each(piece)
}

/// The filter of `section`, as far as it is undamaged, and what is damaged.
///
/// # Errors
/// A failed read only: damage is in the list.
pub(crate) fn load(file: &TableFile, section: Section) -> Result<(Option<BlockedFilter>, Vec<Error>)> {
    let bytes = file.read(section.offset, section.bytes, "filter")?;
    let (shape, mut rest) = match decode_shape(file, section, &bytes) {
        Ok(found) => found,
        Err(error) => return Ok((None, vec![error])),
    };
    let mut damage = Vec::new();
    let mut slices = Vec::with_capacity(shape.slices());
    let mut at = section.offset.saturating_add((SHAPE_BYTES + CHECKSUM_BYTES) as u64);
    for number in 0..shape.slices() {
        // The section's length was compared with the shape's, so every piece is there.
        let (slice, after) = rest.split_at_checked(shape.slice_bytes()).unwrap_or_default();
        let (stated, after) = after.split_first_chunk::<CHECKSUM_BYTES>().unwrap_or((&[0; 4], &[]));
        let (stated, found) = (u32::from_le_bytes(*stated), checksum(file.birth, at, slice));
        if stated == found {
            slices.push(Some(slice.into()));
        } else {
            let detail = format!("slice {number}: checksum {found:08x}, expected {stated:08x}");
            damage.push(file.damaged(at, SLICE, detail));
            slices.push(None);
        }
        rest = after;
        at = at.saturating_add((shape.slice_bytes() + CHECKSUM_BYTES) as u64);
    }
    match BlockedFilter::from_slices_partial(shape, slices) {
        Ok(filter) => Ok((Some(filter), damage)),
        Err(detail) => Ok((None, vec![file.damaged(section.offset, SHAPE, detail)])),
    }
}

fn decode_shape<'a>(file: &TableFile, section: Section, bytes: &'a [u8]) -> Result<(FilterShape, &'a [u8])> {
    let damaged = |detail: String| file.damaged(section.offset, SHAPE, detail);
    let cut = || damaged(format!("{} bytes are no filter", bytes.len()));
    let (shape, rest) = bytes.split_first_chunk::<SHAPE_BYTES>().ok_or_else(cut)?;
    let (stated, rest) = rest.split_first_chunk::<CHECKSUM_BYTES>().ok_or_else(cut)?;
    let (stated, found) = (u32::from_le_bytes(*stated), checksum(file.birth, section.offset, shape));
    if stated != found {
        return Err(damaged(format!("checksum {found:08x}, expected {stated:08x}")));
    }
    let shape = FilterShape::decode(shape).map_err(damaged)?;
    let expected = shape.total_bytes() + (shape.slices() * CHECKSUM_BYTES) as u64;
    if rest.len() as u64 != expected {
        return Err(damaged(format!("{} bytes of slices, expected {expected}", rest.len())));
    }
    Ok((shape, rest))
}
