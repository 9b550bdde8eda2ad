//! The layout of a table file: header page, sections, footer.
//!
//! ```text
//! 0      header page, 4,096 bytes
//! 4096   dictionary          one frame, if the header states its length
//!        data section        blocks; an uncompressed one starts on a page, or on a multiple of 64
//!                            if the padding would be too long ([`placement`]); before each, the
//!                            chunks of the large values that it refers to
//!        index partitions    blocks of (separator -> data block)
//!        index top level     one block of (separator -> partition)
//!        filter section      shape, then slices
//!        range tombstones    one block
//!        properties          one block of (name -> value)
//!        footer, 256 bytes   places of the sections
//! ```
//!
//! Sections are contiguous in this order and fill the file between header, or dictionary, and
//! footer; an empty section is absent. Field tables and a worked example: `docs/formats/table.md`.

pub(crate) mod footer;
pub(crate) mod header;
pub(crate) mod origin;
pub(crate) mod partitions;
pub(crate) mod placement;
pub(crate) mod properties;

use std::fmt;
use std::ops::RangeInclusive;

/// Length of the header page; the data section starts after it, page-aligned.
pub(crate) const HEADER_BYTES: usize = 4_096;
/// Length of the footer in every version.
pub(crate) const FOOTER_BYTES: usize = 256;
/// Bytes that every table file has besides its sections: header page and footer.
pub const FIXED_BYTES: u64 = (HEADER_BYTES + FOOTER_BYTES) as u64;
/// A page of the file, for placing uncompressed data blocks: the unit of direct I/O.
pub(crate) const PAGE_BYTES: usize = 4_096;

/// Allowed block sizes. The smallest are for tests; the largest bounds the cost of decoding.
pub(crate) const BLOCK_BYTES_ALLOWED: RangeInclusive<usize> = 64..=(64 << 10);

/// The version that this build writes, and the only one that it reads.
pub(crate) const VERSION: u32 = 1;
/// A required feature: data blocks may have the layout tagged ([`crate::block`]).
pub(crate) const FEATURE_TAGGED_BLOCKS: u64 = 1;
/// A required feature: zstd compresses data blocks with the dictionary that follows the header page
/// ([`crate::compression`]).
pub(crate) const FEATURE_DICTIONARY: u64 = 2;
/// Required feature bits in the header that this build knows.
pub(crate) const REQUIRED_KNOWN: u64 = FEATURE_TAGGED_BLOCKS | FEATURE_DICTIONARY;
/// A required feature in the footer: the data section has chunks of large values
/// ([`crate::values`]).
pub(crate) const FEATURE_VALUES: u64 = 1;
/// A required feature in the footer: the data section has operands of merge operators
/// ([`shamba_key::Operand`]).
pub(crate) const FEATURE_OPERANDS: u64 = 2;

/// Required feature: entries may expire ([`EntryKind::has_expiry`]).
///
/// [`EntryKind::has_expiry`]: shamba_key::EntryKind::has_expiry
pub(crate) const FEATURE_EXPIRY: u64 = 4;
/// A required feature in the footer: entries refer to value files ([`crate::value_file`]), which
/// the properties name.
pub(crate) const FEATURE_VALUE_FILES: u64 = 8;
/// Required feature bits in the footer that this build knows.
pub(crate) const REQUIRED_KNOWN_AT_END: u64 =
    FEATURE_VALUES | FEATURE_OPERANDS | FEATURE_EXPIRY | FEATURE_VALUE_FILES;

/// The kinds of sections. The byte values are stored in files: never reuse one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum SectionKind {
    /// Data blocks.
    Data = 1,
    /// Large values outside the data section (reserved and unused: their chunks lie in the data
    /// section).
    Values = 2,
    /// Index partitions.
    Index = 3,
    /// The index's top level.
    IndexTop = 4,
    /// Filter shape and slices.
    Filter = 5,
    /// Range tombstones.
    RangeTombstones = 6,
    /// Properties.
    Properties = 7,
}

impl SectionKind {
    /// All kinds, in file order.
    pub const ALL: [Self; 7] = [
        Self::Data,
        Self::Values,
        Self::Index,
        Self::IndexTop,
        Self::Filter,
        Self::RangeTombstones,
        Self::Properties,
    ];

    /// The kind with this stored byte; `None` for an unknown one.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// The name in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Values => "values",
            Self::Index => "index partitions",
            Self::IndexTop => "index top level",
            Self::Filter => "filter",
            Self::RangeTombstones => "range tombstones",
            Self::Properties => "properties",
        }
    }
}

impl fmt::Display for SectionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A contiguous part of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Section {
    /// Kind of its content.
    pub kind: SectionKind,
    /// Offset in the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Section {
    /// End of the section, exclusive. The directory is checked to end at the footer, so this cannot
    /// overflow.
    pub fn end(self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}
