//! The footer: places of the sections, key hash and comparator.
//!
//! ```text
//! 0    directory: 10 places of (kind u8, offset u64, bytes u64), unused ones zero
//! 170  sections in use     u8
//! 171  digest kind         u8
//! 172  digest seed         u64
//! 180  comparator          16 bytes, zero-padded: "bytewise"
//! 196  required features   u64: as in the header; those known only when the file ends
//! 204  zeros
//! 244  checksum            u32 of bytes 0..244
//! 248  magic "SHAMBATF"
//! ```
//!
//! The sections ascend in kind and fill the file from the end of the header page, or of the
//! dictionary behind it, to the footer without a gap, so every byte of the file belongs to a
//! structure that is checked.

use std::path::Path;

use shamba_key::{DigestFn, DigestKind};

use super::{FOOTER_BYTES, HEADER_BYTES, REQUIRED_KNOWN_AT_END, Section, SectionKind};
use crate::checksum::checksum;
use crate::id::BirthId;
use crate::{Error, Result};

const MAGIC: [u8; 8] = *b"SHAMBATF";
const PLACES: usize = 10;
const PLACE_BYTES: usize = 17;
const SECTIONS_AT: usize = PLACES * PLACE_BYTES;
const COMPARATOR: [u8; 16] = *b"bytewise\0\0\0\0\0\0\0\0";
const CHECKSUM_AT: usize = FOOTER_BYTES - 12;
/// Name of the footer in errors.
pub(crate) const STRUCTURE: &str = "footer";

const _: () = assert!(SECTIONS_AT == 170 && SECTIONS_AT + 2 + 8 + 16 + 8 <= CHECKSUM_AT);
const _: () = assert!(SectionKind::ALL.len() <= PLACES);

/// Content of the footer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Footer {
    /// Offset of the first section.
    pub(crate) start: u64,
    pub(crate) sections: Vec<Section>,
    pub(crate) digest: DigestFn,
    /// Required features of the file: [`super::FEATURE_VALUES`], [`super::FEATURE_OPERANDS`],
    /// [`super::FEATURE_EXPIRY`] and [`super::FEATURE_VALUE_FILES`].
    pub(crate) required: u64,
}

impl Footer {
    /// The section of this kind, if the file has one.
    pub(crate) fn section(&self, kind: SectionKind) -> Option<Section> {
        self.sections.iter().copied().find(|section| section.kind == kind)
    }

    /// Encodes the footer, which lies at `offset`.
    pub(crate) fn encode(&self, birth: BirthId, offset: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FOOTER_BYTES);
        for section in &self.sections {
            bytes.push(section.kind as u8);
            bytes.extend_from_slice(&section.offset.to_le_bytes());
            bytes.extend_from_slice(&section.bytes.to_le_bytes());
        }
        assert!(
            self.sections.len() <= PLACES,
            "{} sections, at most {PLACES} have a place",
            self.sections.len()
        );
        assert!(
            self.sections
                .windows(2)
                .all(|pair| pair[0].kind < pair[1].kind && pair[0].end() == pair[1].offset),
            "the sections are not in order, or do not adjoin"
        );
        assert!(
            self.sections.first().is_none_or(|first| first.offset == self.start),
            "the first section does not begin at {}",
            self.start
        );
        assert!(
            self.sections.last().is_none_or(|last| last.end() == offset),
            "the footer at {offset} does not follow the last section"
        );
        bytes.resize(SECTIONS_AT, 0);
        bytes.push(self.sections.len() as u8);
        bytes.push(self.digest.kind() as u8);
        bytes.extend_from_slice(&self.digest.seed().to_le_bytes());
        bytes.extend_from_slice(&COMPARATOR);
        bytes.extend_from_slice(&self.required.to_le_bytes());
        bytes.resize(CHECKSUM_AT, 0);
        let sum = checksum(birth, offset, &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.extend_from_slice(&MAGIC);
        assert_eq!(bytes.len(), FOOTER_BYTES, "the fields of a footer have another length");
        bytes
    }

    /// Decodes the footer in `bytes`, which lie at `offset` and end the file.
    pub(crate) fn decode(file: &Path, birth: BirthId, offset: u64, bytes: &[u8]) -> Result<Self> {
        let damaged = |detail: String| Error::corruption(file, offset, STRUCTURE, detail);
        let Some((covered, magic)) = bytes.split_last_chunk::<8>().filter(|_| bytes.len() == FOOTER_BYTES)
        else {
            return Err(damaged(format!("{} bytes, expected {FOOTER_BYTES}", bytes.len())));
        };
        if *magic != MAGIC {
            let (found, expected) = (magic.escape_ascii(), MAGIC.escape_ascii());
            return Err(damaged(format!(
                "magic \"{found}\", expected \"{expected}\": is the file cut short?"
            )));
        }
        let Some((covered, stated)) = covered.split_last_chunk::<4>() else {
            return Err(damaged("no checksum".to_owned()));
        };
        let (stated, found) = (u32::from_le_bytes(*stated), checksum(birth, offset, covered));
        if stated != found {
            return Err(damaged(format!("checksum {found:08x}, expected {stated:08x}")));
        }
        let fields = covered.get(SECTIONS_AT..).unwrap_or_default();
        let Some(([count, digest_kind, s0, s1, s2, s3, s4, s5, s6, s7], fields)) =
            fields.split_first_chunk::<10>()
        else {
            return Err(damaged("no fields".to_owned()));
        };
        let Some((comparator, fields)) = fields.split_first_chunk::<16>() else {
            return Err(damaged("no comparator".to_owned()));
        };
        if *comparator != COMPARATOR {
            let name = comparator.escape_ascii();
            return Err(Error::unsupported(file, format!("unknown comparator \"{name}\"")));
        }
        let required = fields.first_chunk().map_or(0, |bits| u64::from_le_bytes(*bits));
        let unknown = required & !REQUIRED_KNOWN_AT_END;
        if unknown != 0 {
            return Err(Error::unsupported(
                file,
                format!("unknown required table features {unknown:#x} at its end"),
            ));
        }
        let kind = DigestKind::from_byte(*digest_kind)
            .ok_or_else(|| Error::unsupported(file, format!("unknown digest kind {digest_kind}")))?;
        let seed = u64::from_le_bytes([*s0, *s1, *s2, *s3, *s4, *s5, *s6, *s7]);
        let (start, sections) = decode_directory(covered, usize::from(*count), offset).map_err(damaged)?;
        Ok(Self { start, sections, digest: DigestFn::new(kind, seed), required })
    }
}

/// The start of the first section, and the sections in use; `end` is the start of the footer.
fn decode_directory(
    bytes: &[u8],
    count: usize,
    end: u64,
) -> std::result::Result<(u64, Vec<Section>), String> {
    let directory = bytes.get(..SECTIONS_AT).unwrap_or_default();
    if count > PLACES {
        return Err(format!("{count} sections, at most {PLACES} expected"));
    }
    let mut sections: Vec<Section> = Vec::with_capacity(count);
    let first = directory.get(1..).filter(|_| count > 0).and_then(<[u8]>::first_chunk);
    let start = first.map_or(end, |offset| u64::from_le_bytes(*offset));
    if start < HEADER_BYTES as u64 {
        return Err(format!("the first section is at {start}, in the header"));
    }
    let mut expected = start;
    let mut last_kind = 0;
    for place in directory.chunks_exact(PLACE_BYTES).take(count) {
        let [kind, o0, o1, o2, o3, o4, o5, o6, o7, b0, b1, b2, b3, b4, b5, b6, b7] = place else {
            return Err("a cut directory".to_owned());
        };
        let offset = u64::from_le_bytes([*o0, *o1, *o2, *o3, *o4, *o5, *o6, *o7]);
        let bytes = u64::from_le_bytes([*b0, *b1, *b2, *b3, *b4, *b5, *b6, *b7]);
        if *kind <= last_kind {
            return Err(format!("section kind {kind} after {last_kind}"));
        }
        last_kind = *kind;
        if offset != expected || bytes == 0 {
            return Err(format!("section kind {kind} of {bytes} bytes at {offset}, expected at {expected}"));
        }
        expected = offset.checked_add(bytes).ok_or("a section beyond the largest offset")?;
        // An unknown kind is optional: otherwise a required feature bit would announce it.
        if let Some(kind) = SectionKind::from_byte(*kind) {
            sections.push(Section { kind, offset, bytes });
        }
    }
    if expected != end {
        return Err(format!("sections end at {expected}, the footer starts at {end}"));
    }
    Ok((start, sections))
}
