//! The file header: identifies a file, before its first frame. `CURRENT` consists of a file header
//! only.
//!
//! ```text
//!  0  8  magic            SHAMBAWL (log), SHAMBAMF (manifest), SHAMBACU (CURRENT),
//!                           SHAMBAVL (side file), SHAMBAST (statistics)
//!  8  4  version          1
//! 12  8  required feature bits    an unknown one: the file must not be opened
//! 20  8  optional feature bits    an unknown one: ignored
//! 28  8  birth id         random; salts the payload checksums
//! 36  8  number           of this file; in CURRENT: of the manifest that it names
//! 44  4  checksum of bytes 0..44, salted with the birth id and offset 0
//! ```
//!
//! The layout of these 48 bytes is the same in every later version. A newer version or an unknown
//! required bit is reported as unsupported even when the checksum is wrong: a refused file can
//! still be read later, a dropped one is lost.

use shamba_table::{BirthId, checksum};

use super::codec::Decoder;

/// Length of the file header.
pub const HEADER_BYTES: u64 = 48;
const VERSION: u32 = 1;
/// Feature bits that this build understands: none exist yet.
const KNOWN_REQUIRED: u64 = 0;
const CHECKED_BYTES: usize = 44;
const _: () =
    assert!(CHECKED_BYTES + size_of::<u32>() == HEADER_BYTES as usize, "the checksum is the last field");

/// Kind of a framed file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// A write-ahead log.
    Wal,
    /// A manifest.
    Manifest,
    /// The `CURRENT` file.
    Current,
    /// Long values of a database that has no log: a side file.
    Values,
    /// The lookup statistics.
    Statistics,
}

impl FileKind {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Wal => b"SHAMBAWL",
            Self::Manifest => b"SHAMBAMF",
            Self::Current => b"SHAMBACU",
            Self::Values => b"SHAMBAVL",
            Self::Statistics => b"SHAMBAST",
        }
    }

    /// The name of the header structure in error messages.
    pub fn header_structure(self) -> &'static str {
        match self {
            Self::Wal => "log header",
            Self::Manifest => "manifest header",
            Self::Current => "CURRENT",
            Self::Values => "side file header",
            Self::Statistics => "statistics header",
        }
    }

    /// The name of the frame structure in error messages.
    pub fn frame_structure(self) -> &'static str {
        match self {
            Self::Wal => "log frame",
            Self::Manifest | Self::Current => "manifest frame",
            Self::Values => "side file frame",
            // The statistics file has no frames.
            Self::Statistics => "statistics",
        }
    }
}

/// A decoded file header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileHeader {
    /// Birth id of the file.
    pub birth: BirthId,
    /// Number in the file's name.
    pub number: u64,
    /// Optional features that the file uses, one bit each.
    pub optional: u64,
}

/// The reason why a file header cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HeaderFault {
    /// The bytes differ from those of a valid header; possibly the header was never written.
    Damaged(String),
    /// Written by a newer version, or with a feature that this build does not know.
    Unsupported(String),
}

impl FileHeader {
    /// Creates a header of the current version.
    pub fn new(birth: BirthId, number: u64) -> Self {
        Self { birth, number, optional: 0 }
    }

    /// Encodes the header.
    pub fn encode(&self, kind: FileKind) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES as usize);
        bytes.extend_from_slice(kind.magic());
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&0u64.to_le_bytes());
        bytes.extend_from_slice(&self.optional.to_le_bytes());
        bytes.extend_from_slice(&self.birth.0.to_le_bytes());
        bytes.extend_from_slice(&self.number.to_le_bytes());
        assert_eq!(bytes.len(), CHECKED_BYTES, "the checksum of a file header must cover every other field");
        let sum = checksum(self.birth, 0, &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Whether the first bytes of a file are an undamaged header, of this or of a later version.
    pub fn is_intact(bytes: &[u8]) -> bool {
        let mut decoder = Decoder::new(bytes.get(CHECKED_BYTES - 16..).unwrap_or_default());
        let (Ok(birth), Ok(_number), Ok(stored)) = (decoder.u64(), decoder.u64(), decoder.u32()) else {
            return false;
        };
        stored == checksum(BirthId(birth), 0, &bytes[..CHECKED_BYTES])
    }

    /// Decodes a header from the first bytes of a file. `number` is the number in the file's name,
    /// or `None` if the name has none.
    pub fn decode(kind: FileKind, number: Option<u64>, bytes: &[u8]) -> Result<Self, HeaderFault> {
        let cut = |_| HeaderFault::Damaged(format!("{} bytes, expected {HEADER_BYTES}", bytes.len()));
        let mut decoder = Decoder::new(bytes);
        if decoder.take(8).map_err(cut)? != kind.magic() {
            return Err(HeaderFault::Damaged("wrong magic".to_owned()));
        }
        let version = decoder.u32().map_err(cut)?;
        if version > VERSION {
            return Err(HeaderFault::Unsupported(format!(
                "format version {version}, newest known {VERSION}"
            )));
        }
        let unknown = decoder.u64().map_err(cut)? & !KNOWN_REQUIRED;
        if unknown != 0 {
            return Err(HeaderFault::Unsupported(format!("unknown required feature bits {unknown:#x}")));
        }
        let optional = decoder.u64().map_err(cut)?;
        let birth = BirthId(decoder.u64().map_err(cut)?);
        let stated = decoder.u64().map_err(cut)?;
        let stored = decoder.u32().map_err(cut)?;
        let computed = checksum(birth, 0, bytes.get(..CHECKED_BYTES).unwrap_or_default());
        if stored != computed {
            return Err(HeaderFault::Damaged(format!("checksum {stored:08x}, computed {computed:08x}")));
        }
        if version != VERSION {
            return Err(HeaderFault::Damaged(format!("format version {version} does not exist")));
        }
        if number.is_some_and(|number| number != stated) {
            return Err(HeaderFault::Damaged(format!("it belongs to file number {stated}")));
        }
        debug_assert_eq!(
            bytes.len() - decoder.rest().len(),
            HEADER_BYTES as usize,
            "the fields read of a file header differ from its length"
        );
        Ok(Self { birth, number: stated, optional })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Vec<u8> {
        FileHeader::new(BirthId(0x0102_0304_0506_0708), 7).encode(FileKind::Wal)
    }

    #[test]
    fn a_header_round_trips_and_knows_its_file() {
        let bytes = example();
        assert_eq!(bytes.len() as u64, HEADER_BYTES);
        let header = FileHeader::decode(FileKind::Wal, Some(7), &bytes).expect("it is valid");
        assert_eq!(header, FileHeader::new(BirthId(0x0102_0304_0506_0708), 7));
        assert!(matches!(FileHeader::decode(FileKind::Wal, Some(8), &bytes), Err(HeaderFault::Damaged(_))));
        assert!(matches!(FileHeader::decode(FileKind::Manifest, None, &bytes), Err(HeaderFault::Damaged(_))));
    }

    #[test]
    fn every_flip_and_every_cut_is_noticed_and_newer_files_are_refused() {
        for at in 0..HEADER_BYTES as usize {
            for mask in [0x01, 0x80, 0xff] {
                let mut bytes = example();
                bytes[at] ^= mask;
                let fault = FileHeader::decode(FileKind::Wal, Some(7), &bytes).expect_err("damaged");
                // Version 1 with bit 0 flipped is version 0: an older version, not a newer one.
                let refused = (8..20).contains(&at) && !(at == 8 && mask == 0x01);
                assert_eq!(matches!(fault, HeaderFault::Unsupported(_)), refused, "byte {at} mask {mask:x}");
            }
            let cut = FileHeader::decode(FileKind::Wal, Some(7), &example()[..at]);
            assert!(matches!(cut, Err(HeaderFault::Damaged(_))), "cut at {at}");
        }
    }

    #[test]
    fn error_messages_tell_the_headers_of_the_files_apart() {
        let kinds =
            [FileKind::Wal, FileKind::Manifest, FileKind::Current, FileKind::Values, FileKind::Statistics];
        let names = ["log header", "manifest header", "CURRENT", "side file header", "statistics header"];
        assert_eq!(kinds.map(FileKind::header_structure), names);
    }
}
