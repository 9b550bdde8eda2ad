//! Frames: a seven-byte header, a payload, and one checksum over both. The layout is in [`super`].

use shamba_table::{BirthId, checksum};

use super::codec::{Decoded, Decoder};

/// Maximum length of a frame, header included.
pub const FRAME_BYTES_MAX: usize = 64 << 10;
/// Length of a frame header.
pub const FRAME_HEADER_BYTES: usize = 7;
/// Maximum payload length of one frame.
pub const PAYLOAD_BYTES_MAX: usize = FRAME_BYTES_MAX - FRAME_HEADER_BYTES;
const _: () = assert!(PAYLOAD_BYTES_MAX <= u16::MAX as usize, "the length field has two bytes");
const _: () =
    assert!(FRAME_HEADER_BYTES == size_of::<u32>() + 1 + size_of::<u16>(), "checksum, kind, length");

/// Payload length of a promise: the synced offset (8 bytes) and the birth tag (4 bytes).
const PROMISE_PAYLOAD_BYTES: usize = 12;
const _: () = assert!(PROMISE_PAYLOAD_BYTES <= u8::MAX as usize, "the search for promises compares one byte");
/// Length of a promise frame.
pub const PROMISE_BYTES: usize = FRAME_HEADER_BYTES + PROMISE_PAYLOAD_BYTES;

/// Kind of a frame. The byte values are part of the format and are never reused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameKind {
    /// A whole record.
    Full = 1,
    /// The first frame of a record.
    First = 2,
    /// A frame of a record that is neither the first nor the last.
    Middle = 3,
    /// The last frame of a record.
    Last = 4,
    /// The first record of a log: it describes the preceding log.
    Head = 5,
    /// The last record of a file that was closed cleanly.
    End = 6,
    /// A promise: the offset up to which the file was synced before this frame was written.
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

    /// The name of the kind in descriptions.
    pub fn name(self) -> &'static str {
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

/// The number and birth id of a file: the salt of its checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileIdentity {
    /// Number in the file's name.
    pub number: u64,
    /// Birth id of the file.
    pub birth: BirthId,
}

impl FileIdentity {
    fn checksum(&self, kind: FrameKind, offset: u64, checked: &[u8]) -> u32 {
        match kind {
            FrameKind::Promise => promise_checksum(self.number, offset, checked),
            _ => checksum(self.birth, offset, checked),
        }
    }

    /// The birth tag: 32 bits that tie a promise to this birth id.
    fn birth_tag(&self) -> u32 {
        checksum(self.birth, u64::MAX, &self.number.to_le_bytes())
    }

    /// Fills in the header of a frame that will lie at `offset` and whose payload is already in
    /// place. Returns the frame's checksum. The payload has at most [`PAYLOAD_BYTES_MAX`] bytes.
    pub fn seal(&self, kind: FrameKind, offset: u64, frame: &mut [u8]) -> u32 {
        assert!(
            frame.len() >= FRAME_HEADER_BYTES,
            "a frame of {} bytes has no room for its header",
            frame.len()
        );
        let payload_bytes = frame.len() - FRAME_HEADER_BYTES;
        assert!(
            payload_bytes <= PAYLOAD_BYTES_MAX,
            "a payload of {payload_bytes} bytes exceeds the length field"
        );
        frame[4] = kind as u8;
        frame[5..FRAME_HEADER_BYTES].copy_from_slice(&(payload_bytes as u16).to_le_bytes());
        let sum = self.checksum(kind, offset, &frame[4..]);
        frame[..4].copy_from_slice(&sum.to_le_bytes());
        sum
    }

    /// Encodes a promise frame for `offset`: everything below `below` is synced.
    pub fn promise(&self, below: u64, offset: u64) -> [u8; PROMISE_BYTES] {
        let mut frame = [0; PROMISE_BYTES];
        frame[FRAME_HEADER_BYTES..15].copy_from_slice(&below.to_le_bytes());
        frame[15..].copy_from_slice(&self.birth_tag().to_le_bytes());
        self.seal(FrameKind::Promise, offset, &mut frame);
        frame
    }
}

fn promise_checksum(number: u64, offset: u64, checked: &[u8]) -> u32 {
    // Not salted with the birth id, so that a promise stays readable when the file header is lost.
    // The checked bytes contain the birth tag, which excludes promises of an earlier file of the
    // same number.
    checksum(BirthId(number), offset, checked)
}

/// A decoded frame header. The checksum is not verified yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    /// Kind of the frame.
    pub kind: FrameKind,
    /// Length of the payload.
    pub payload_bytes: usize,
}

impl FrameHeader {
    /// The length of the whole frame.
    pub fn frame_bytes(self) -> usize {
        FRAME_HEADER_BYTES + self.payload_bytes
    }

    /// Decodes the first bytes of a frame.
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        let cut = |_| format!("{} bytes left, a frame header has {FRAME_HEADER_BYTES}", bytes.len());
        let mut decoder = Decoder::new(bytes);
        decoder.u32().map_err(cut)?;
        let kind = decoder.u8().map_err(cut)?;
        let payload_bytes = usize::from(decoder.u16().map_err(cut)?);
        let Some(kind) = FrameKind::from_byte(kind) else {
            let is_zeros = bytes.iter().take(FRAME_HEADER_BYTES).all(|&byte| byte == 0);
            return Err(match is_zeros {
                true => "zeros instead of a frame header".to_owned(),
                false => format!("frame kind {kind} is unknown"),
            });
        };
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(format!("a payload of {payload_bytes} bytes"));
        }
        Ok(Self { kind, payload_bytes })
    }
}

/// A frame with a verified checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Kind of the frame.
    pub kind: FrameKind,
    /// Payload.
    pub payload: &'a [u8],
    /// Checksum of kind, length and payload.
    pub checksum: u32,
    /// The synced offset that a promise states; 0 in every other frame.
    pub promise: u64,
}

impl<'a> Frame<'a> {
    /// Verifies the frame at `offset`, whose header is `header`. `bytes` begins at the frame and
    /// may extend past its end.
    pub fn decode(file: FileIdentity, header: FrameHeader, offset: u64, bytes: &'a [u8]) -> Decoded<Self> {
        let FrameHeader { kind, payload_bytes } = header;
        debug_assert!(
            payload_bytes <= PAYLOAD_BYTES_MAX,
            "a header that `FrameHeader::decode` refuses: {header:?}"
        );
        let Some(bytes) = bytes.get(..header.frame_bytes()) else {
            let left = bytes.len().saturating_sub(FRAME_HEADER_BYTES);
            return Err(format!("{left} bytes left of a payload of {payload_bytes}"));
        };
        let stored = Decoder::new(bytes).u32()?;
        let computed = file.checksum(kind, offset, bytes.get(4..).unwrap_or_default());
        if stored != computed {
            return Err(format!("frame checksum {stored:08x}, computed {computed:08x}"));
        }
        let payload = bytes.get(FRAME_HEADER_BYTES..).unwrap_or_default();
        let mut promise = 0;
        if kind == FrameKind::Promise {
            let (below, tag) = decode_promise(payload, offset)?;
            if tag != file.birth_tag() {
                return Err("the promise belongs to an earlier file of this name".to_owned());
            }
            promise = below;
        }
        Ok(Self { kind, payload, checksum: stored, promise })
    }
}

/// Decodes the payload of a promise: the synced offset and the birth tag.
fn decode_promise(payload: &[u8], offset: u64) -> Decoded<(u64, u32)> {
    let mut decoder = Decoder::new(payload);
    let (below, tag) = (decoder.u64()?, decoder.u32()?);
    decoder.finish()?;
    match below > offset {
        true => Err(format!("it promises {below}, beyond its own offset")),
        false => Ok((below, tag)),
    }
}

/// Returns the synced offset of the promise that begins at `offset` of file `number`, if one does.
/// Used to search a file whose frames, and possibly header, are damaged. Without a birth id, every
/// promise with a valid checksum counts.
pub fn promise_at(number: u64, birth: Option<BirthId>, offset: u64, bytes: &[u8]) -> Option<u64> {
    // These three bytes reject nearly every position without a checksum computation.
    const BEGIN: [u8; 3] = [FrameKind::Promise as u8, PROMISE_PAYLOAD_BYTES as u8, 0];
    let frame = bytes.get(..PROMISE_BYTES)?;
    if frame.get(4..FRAME_HEADER_BYTES)? != BEGIN {
        return None;
    }
    let (below, tag) = decode_promise(frame.get(FRAME_HEADER_BYTES..)?, offset).ok()?;
    let is_whole = Decoder::new(frame).u32().ok()? == promise_checksum(number, offset, frame.get(4..)?);
    let is_ours = birth.is_none_or(|birth| FileIdentity { number, birth }.birth_tag() == tag);
    (is_whole && is_ours).then_some(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileIdentity = FileIdentity { number: 7, birth: BirthId(9) };

    fn decode(file: FileIdentity, offset: u64, bytes: &[u8]) -> Decoded<Frame<'_>> {
        Frame::decode(file, FrameHeader::decode(bytes)?, offset, bytes)
    }

    #[test]
    fn a_frame_round_trips_only_at_its_place_and_every_flip_is_noticed() {
        let mut frame = [0; FRAME_HEADER_BYTES + 5];
        frame[FRAME_HEADER_BYTES..].copy_from_slice(b"hello");
        let checksum = FILE.seal(FrameKind::Full, 100, &mut frame);
        let whole = Frame { kind: FrameKind::Full, payload: b"hello", checksum, promise: 0 };
        assert_eq!(decode(FILE, 100, &frame), Ok(whole));
        let longer: Vec<u8> = frame.iter().copied().chain([1, 2, 3]).collect();
        assert_eq!(decode(FILE, 100, &longer), Ok(whole));
        for frame in [&frame[..], &FILE.promise(48, 100)[..]] {
            assert!(decode(FILE, 101, frame).is_err(), "another offset");
            assert!(decode(FileIdentity { birth: BirthId(8), ..FILE }, 100, frame).is_err(), "another life");
            for at in 0..frame.len() {
                for mask in [0x01, 0x80, 0xff] {
                    let mut damaged = frame.to_vec();
                    damaged[at] ^= mask;
                    assert!(decode(FILE, 100, &damaged).is_err(), "byte {at} mask {mask:x}");
                    assert_eq!(promise_at(7, None, 100, &damaged), None, "byte {at} mask {mask:x}");
                }
                assert!(decode(FILE, 100, &frame[..at]).is_err(), "cut at {at}");
                assert_eq!(promise_at(7, None, 100, &frame[..at]), None, "cut at {at}");
            }
        }
    }

    #[test]
    fn a_promise_is_read_without_the_birth_id_but_not_from_another_file_or_about_the_future() {
        let promise = FILE.promise(48, 100);
        assert_eq!(decode(FILE, 100, &promise).map(|frame| frame.promise), Ok(48));
        assert_eq!(promise_at(7, None, 100, &promise), Some(48));
        assert_eq!(promise_at(7, Some(FILE.birth), 100, &promise), Some(48));
        assert_eq!(promise_at(7, Some(BirthId(8)), 100, &promise), None, "another life");
        assert_eq!(promise_at(8, None, 100, &promise), None, "another file");
        assert!(decode(FileIdentity { number: 8, ..FILE }, 100, &promise).is_err(), "another file");
        assert_eq!(promise_at(7, None, 101, &promise), None, "another place");
        let future = FILE.promise(101, 100);
        assert_eq!(promise_at(7, None, 100, &future), None);
        assert!(decode(FILE, 100, &future).is_err());
    }

    #[test]
    fn bytes_that_are_no_frame_header_are_described() {
        let fault = |bytes: &[u8]| FrameHeader::decode(bytes).expect_err("no frame header");
        assert_eq!(fault(&[0; FRAME_HEADER_BYTES]), "zeros instead of a frame header");
        assert_eq!(fault(&[0, 0, 0, 0, 0, 0, 0, 9]), "zeros instead of a frame header");
        assert_eq!(fault(&[9, 9, 9, 9, 8, 9, 9]), "frame kind 8 is unknown");
        assert_eq!(fault(&[0, 0, 0, 0, 0, 0, 9]), "frame kind 0 is unknown");
        assert_eq!(fault(&[0; 3]), "3 bytes left, a frame header has 7");
        assert_eq!(fault(&[0, 0, 0, 0, 1, 0xfa, 0xff]), "a payload of 65530 bytes");
        let longest = FrameHeader { kind: FrameKind::Full, payload_bytes: PAYLOAD_BYTES_MAX };
        assert_eq!(FrameHeader::decode(&[0, 0, 0, 0, 1, 0xf9, 0xff]), Ok(longest));
    }
}
