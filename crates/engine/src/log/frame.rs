//! Frame headers: the 32 bytes before each payload. Picture in [`super`].

use shamba_table::{BirthId, checksum};

use super::codec::{Decoded, Decoder};

/// The longest frame, header included.
pub(crate) const FRAME_BYTES_MAX: usize = 64 << 10;
/// Length of a frame header.
pub(crate) const FRAME_HEADER_BYTES: usize = 32;
/// The longest payload of one frame.
pub(crate) const PAYLOAD_BYTES_MAX: usize = FRAME_BYTES_MAX - FRAME_HEADER_BYTES;
const _: () = assert!(PAYLOAD_BYTES_MAX <= u16::MAX as usize, "the length field has two bytes");

/// What a frame is. The bytes are part of the format: never reuse one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum FrameKind {
    /// A whole record.
    Full = 1,
    /// The beginning of a record.
    First = 2,
    /// More of a record.
    Middle = 3,
    /// The end of a record.
    Last = 4,
    /// The first record of a log: what came before it.
    Head = 5,
    /// The last record of a file that was closed in order.
    End = 6,
    /// Nothing but a promise.
    Promise = 7,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Full,
            2 => Self::First,
            3 => Self::Middle,
            4 => Self::Last,
            5 => Self::Head,
            6 => Self::End,
            7 => Self::Promise,
            _ => return None,
        })
    }

    /// The name in descriptions.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::First => "first",
            Self::Middle => "middle",
            Self::Last => "last",
            Self::Head => "head",
            Self::End => "end",
            Self::Promise => "promise",
        }
    }
}

/// A decoded frame header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameHeader {
    pub(crate) payload_checksum: u32,
    pub(crate) number: u64,
    pub(crate) promise: u64,
    pub(crate) birth_tag: u32,
    pub(crate) payload_bytes: u16,
    pub(crate) kind: FrameKind,
}

/// What only frames of the file with this birth id and number carry.
pub(crate) fn birth_tag(birth: BirthId, number: u64) -> u32 {
    checksum(birth, u64::MAX, &number.to_le_bytes())
}

/// Checksum of the payload of a frame that begins at `offset`.
pub(crate) fn payload_checksum(birth: BirthId, offset: u64, payload: &[u8]) -> u32 {
    checksum(birth, offset.wrapping_add(FRAME_HEADER_BYTES as u64), payload)
}

fn header_checksum(number: u64, offset: u64, checked: &[u8]) -> u32 {
    // Not salted with the birth id: a promise must stay readable when the file header is lost. The birth
    // tag inside the checked bytes keeps frames of another life of the file out.
    checksum(BirthId(number), offset, checked)
}

impl FrameHeader {
    /// The bytes of the header of a frame that begins at `offset`, and its checksum.
    pub(crate) fn encode(&self, offset: u64) -> ([u8; FRAME_HEADER_BYTES], u32) {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[4..8].copy_from_slice(&self.payload_checksum.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.promise.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.birth_tag.to_le_bytes());
        bytes[28..30].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[30] = self.kind as u8;
        let sum = header_checksum(self.number, offset, &bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        (bytes, sum)
    }

    /// Decodes the header of a frame at `offset` of file `number`; also gives its checksum.
    ///
    /// Cheap tests come first: the search for promises calls this at every byte.
    pub(crate) fn decode(bytes: &[u8], number: u64, offset: u64) -> Decoded<(Self, u32)> {
        let cut = |_| format!("{} bytes left, a frame header has {FRAME_HEADER_BYTES}", bytes.len());
        let mut decoder = Decoder::new(bytes);
        let stored = decoder.u32().map_err(cut)?;
        let payload_checksum = decoder.u32().map_err(cut)?;
        let stated = decoder.u64().map_err(cut)?;
        if stated != number {
            return Err(match bytes.iter().all(|&byte| byte == 0) {
                true => "zeros where a frame header was due".to_owned(),
                false => format!("the frame header names file {stated}"),
            });
        }
        let promise = decoder.u64().map_err(cut)?;
        let birth_tag = decoder.u32().map_err(cut)?;
        let payload_bytes = decoder.u16().map_err(cut)?;
        let kind = decoder.u8().map_err(cut)?;
        let zero = decoder.u8().map_err(cut)?;
        let checked = bytes.get(4..FRAME_HEADER_BYTES).unwrap_or_default();
        let computed = header_checksum(number, offset, checked);
        if stored != computed {
            return Err(format!("frame header checksum {stored:08x}, computed {computed:08x}"));
        }
        let Some(kind) = FrameKind::from_byte(kind) else {
            return Err(format!("frame kind {kind} is unknown"));
        };
        if zero != 0 || usize::from(payload_bytes) > PAYLOAD_BYTES_MAX {
            return Err("frame header fields out of range".to_owned());
        }
        if promise > offset {
            return Err(format!("the frame promises {promise}, beyond its own offset"));
        }
        Ok((Self { payload_checksum, number, promise, birth_tag, payload_bytes, kind }, stored))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_header_round_trips_only_at_its_place_and_every_flip_is_noticed() {
        let header = FrameHeader {
            payload_checksum: 1,
            number: 7,
            promise: 48,
            birth_tag: birth_tag(BirthId(9), 7),
            payload_bytes: 12,
            kind: FrameKind::Full,
        };
        let (bytes, sum) = header.encode(100);
        assert_eq!(FrameHeader::decode(&bytes, 7, 100), Ok((header, sum)));
        assert!(FrameHeader::decode(&bytes, 7, 101).is_err(), "another offset");
        assert!(FrameHeader::decode(&bytes, 8, 100).is_err(), "another file");
        for at in 0..FRAME_HEADER_BYTES {
            for mask in [0x01, 0x80, 0xff] {
                let mut damaged = bytes;
                damaged[at] ^= mask;
                assert!(FrameHeader::decode(&damaged, 7, 100).is_err(), "byte {at} mask {mask:x}");
            }
            assert!(FrameHeader::decode(&bytes[..at], 7, 100).is_err(), "cut at {at}");
        }
        let promising = FrameHeader { promise: 101, ..header };
        assert!(FrameHeader::decode(&promising.encode(100).0, 7, 100).is_err(), "a promise about the future");
    }
}
