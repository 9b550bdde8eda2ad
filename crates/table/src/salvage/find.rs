//! Finding frames whose length is unknown.
//!
//! A frame's checksum is at its end and covers all bytes before it. So a frame that starts at a
//! given place is found by knowing its end, or by trying ends. For a compressed payload the end is
//! computed: the codec's stream is walked, without decoding, up to the length that is stated before
//! it. An uncompressed block starts on a multiple of [`LINE_BYTES`], and its possible ends are
//! tried in one pass over the bytes. A false match of a checksum has a chance of one in 2^32 per
//! try; what matches is then checked in full as a block.
//!
//! Bytes can be crafted so that a frame seems to begin at every place. An [`Allowance`] bounds the
//! work: the bytes that are hashed, walked and read are counted, and may be at most
//! [`ALLOWED_PER_BYTE`] per byte of the file plus [`ALLOWED_FIRST`]. Tries beyond that are skipped
//! and reported as damage, like every place at which no frame is found. An undamaged file needs at
//! most a quarter of the allowance: the search continues at the end of each block, and few places
//! among the zeros up to the next block look like the start of a frame. So each block is tried
//! about once.

use std::hash::Hasher as _;

use bytes::Bytes;
use twox_hash::XxHash3_64;

use crate::Result;
use crate::block::frame::FRAME_BYTES;
use crate::checksum::{checksum, salted};
use crate::compression::{Compression, Dictionary, decompress, zstd_stream_bytes};
use crate::file::TableFile;
use crate::format::BLOCK_BYTES_ALLOWED;
use crate::format::placement::LINE_BYTES;
use crate::format::properties::Properties;
use crate::values::{CHUNK_BYTES_MAX, CHUNK_OVERHEAD_BYTES};

/// Maximum length of a frame that is found: a key of maximum length and a value of about the same
/// length.
const FRAME_BYTES_MAX: usize = 160 << 10;
/// Bytes per read, unless less may be held.
pub(super) const READ_BYTES: usize = 4 * FRAME_BYTES_MAX;
/// Minimum bytes per read beyond the requested ones: some blocks of usual length.
const READ_BYTES_MIN: usize = 16 << 10;
/// Maximum distance before the end at which the properties or range tombstones are searched, and
/// the bytes that may be hashed for it.
const SECTION_BYTES_MAX: u64 = 16 << 20;
const SECTION_ALLOWED: u64 = 256 << 20;
/// Initial allowance of a search: bytes that it may hash, walk and read.
pub(crate) const ALLOWED_FIRST: u64 = 64 << 20;
/// Additional allowance for each byte of the file that the search has passed.
pub(crate) const ALLOWED_PER_BYTE: u64 = 1 << 10;
/// Cost of finishing an incremental checksum, in hashed bytes.
const END_BYTES: u64 = 256;
/// The layout bytes of blocks, and the minimum length of a payload.
const LAYOUT_PLAIN: u8 = 1;
const LAYOUT_TAGGED: u8 = 2;
const BLOCK_HEADER_BYTES: usize = 16;
/// Length of the field before a compressed payload: the payload's length.
const LENGTH_BYTES: usize = 4;
/// Magic number of a zstd stream.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Maximum frame length of a compressed payload of this length: compression saves at least an
/// eighth.
const fn stored_bytes_max(payload_bytes: usize) -> usize {
    payload_bytes - payload_bytes / 8 + FRAME_BYTES
}

/// Result of a search at one place.
pub(super) enum Found {
    /// A data block: its payload and its end.
    Block(Bytes, u64),
    /// A chunk of a large value, and its end.
    Chunk(u64),
    /// No frame.
    Nothing {
        /// Whether the byte there is not 0; between blocks there are zeros.
        is_damage: bool,
    },
}

/// Bytes that may still be hashed, walked and read.
#[derive(Debug)]
struct Allowance {
    left: u64,
    spent: u64,
    /// Place up to which the allowance was granted.
    passed: Option<u64>,
}

impl Allowance {
    fn new(bytes: u64) -> Self {
        Self { left: bytes, spent: 0, passed: None }
    }

    /// Grants the allowance for the bytes up to `at`.
    fn pass(&mut self, at: u64) {
        let passed = *self.passed.get_or_insert(at);
        if at > passed {
            self.left = self.left.saturating_add((at - passed).saturating_mul(ALLOWED_PER_BYTE));
            self.passed = Some(at);
        }
    }

    fn has(&self, bytes: u64) -> bool {
        self.left >= bytes
    }

    /// Spends `bytes` if the allowance suffices; returns whether it does.
    fn takes(&mut self, bytes: u64) -> bool {
        let has = self.has(bytes);
        if has {
            self.left -= bytes;
            self.spent += bytes;
        }
        has
    }
}

/// Kinds of frames that may begin at a place, by its first bytes, with their maximum lengths.
#[derive(Clone, Copy, Default, Debug)]
struct Forms {
    /// Exact length of a chunk.
    chunk_bytes: usize,
    /// Maximum length of an uncompressed block.
    stored_bytes: usize,
    /// Maximum length of a compressed block, and exact length of its payload.
    compressed_bytes: usize,
    payload_bytes: usize,
}

impl Forms {
    fn longest(&self) -> usize {
        self.chunk_bytes.max(self.stored_bytes).max(self.compressed_bytes)
    }
}

/// The bytes read last.
struct Window {
    at: u64,
    bytes: Vec<u8>,
    /// Maximum bytes held between two calls.
    kept_bytes: usize,
}

impl Window {
    /// The bytes from `at` on: `wanted` of them, fewer only before `end` or when the allowance is
    /// spent.
    fn get(
        &mut self,
        file: &TableFile,
        at: u64,
        end: u64,
        wanted: usize,
        allowance: &mut Allowance,
    ) -> Result<&[u8]> {
        let wanted = (wanted as u64).min(end.saturating_sub(at));
        let held_end = self.at + self.bytes.len() as u64;
        if at < self.at || at + wanted > held_end {
            let bytes =
                (wanted + READ_BYTES_MIN as u64).max(self.kept_bytes as u64).min(end.saturating_sub(at));
            if allowance.takes(bytes) {
                self.bytes = file.read(at, bytes, "data block")?;
                self.at = at;
            }
        }
        let from = at.checked_sub(self.at).and_then(|from| usize::try_from(from).ok());
        let held = from.and_then(|from| self.bytes.get(from..)).unwrap_or_default();
        Ok(held.get(..wanted as usize).unwrap_or(held))
    }
}

/// Searches for blocks and chunks from place to place.
pub(super) struct Finder {
    window: Window,
    allowance: Allowance,
    /// Maximum frame length of a block with several entries; one with a single entry may be longer.
    shared_bytes_max: usize,
}

impl Finder {
    /// Creates a finder for a table with these properties, if they are known, that holds at most
    /// `kept_bytes` between two calls.
    pub(super) fn new(properties: Option<&Properties>, kept_bytes: usize) -> Self {
        let block_bytes = properties.map(|known| known.block_bytes as usize);
        Self {
            window: Window { at: 0, bytes: Vec::new(), kept_bytes },
            allowance: Allowance::new(ALLOWED_FIRST),
            shared_bytes_max: block_bytes.unwrap_or(*BLOCK_BYTES_ALLOWED.end()),
        }
    }

    /// Bytes hashed, walked and read so far.
    #[cfg(test)]
    pub(super) fn spent(&self) -> u64 {
        self.allowance.spent
    }

    /// Searches for a frame at `at` that ends at or before `end`.
    pub(super) fn look(
        &mut self,
        file: &TableFile,
        dictionary: Option<&Dictionary>,
        at: u64,
        end: u64,
    ) -> Result<Found> {
        let Self { window, allowance, shared_bytes_max } = self;
        allowance.pass(at);
        let start = window.get(file, at, end, LENGTH_BYTES * 2, allowance)?;
        let is_damage = start.first().is_none_or(|byte| *byte != 0);
        let forms = forms(start, at % LINE_BYTES == 0, *shared_bytes_max);
        if forms.longest() == 0 {
            return Ok(Found::Nothing { is_damage });
        }
        let bytes = window.get(file, at, end, forms.longest(), allowance)?;
        let found = if is_chunk(file, at, bytes, forms.chunk_bytes, allowance) {
            Found::Chunk(at + forms.chunk_bytes as u64)
        } else if let Some((payload, frame_bytes)) = compressed(file, at, bytes, forms, dictionary, allowance)
            .or_else(|| stored(file, at, bytes, forms, allowance))
        {
            Found::Block(payload, at + frame_bytes as u64)
        } else {
            Found::Nothing { is_damage }
        };
        Ok(found)
    }

    /// Frees the window if it exceeds the limit: the caller pauses the search.
    pub(super) fn rest(&mut self) {
        if self.window.bytes.len() > self.window.kept_bytes {
            self.window.bytes = Vec::new();
        }
    }
}

/// The kinds of frames that may begin with `start`.
fn forms(start: &[u8], is_on_line: bool, shared_bytes_max: usize) -> Forms {
    let mut forms = Forms::default();
    let Some(start) = start.first_chunk::<8>() else { return forms };
    let stated = u32::from_le_bytes([start[0], start[1], start[2], start[3]]) as usize;
    if (1..=CHUNK_BYTES_MAX).contains(&stated) {
        forms.chunk_bytes = stated + CHUNK_OVERHEAD_BYTES;
    }
    if is_on_line && start[0] == LAYOUT_TAGGED && start[1] & 0xe0 == 0 && start[3] & 0xf0 == 0 {
        let is_single = u16::from_le_bytes([start[4], start[5]]) == 1;
        forms.stored_bytes = if is_single { FRAME_BYTES_MAX } else { shared_bytes_max };
    }
    if (BLOCK_HEADER_BYTES..=FRAME_BYTES_MAX).contains(&stated) {
        forms.compressed_bytes = stored_bytes_max(stated);
        forms.payload_bytes = stated;
    }
    forms
}

/// Whether `bytes`, which lie at `at`, begin with a chunk of this length, if it is not 0.
fn is_chunk(file: &TableFile, at: u64, bytes: &[u8], chunk_bytes: usize, allowance: &mut Allowance) -> bool {
    chunk_bytes > 0
        && bytes.get(..chunk_bytes).is_some_and(|chunk| sealed(file, at, chunk, allowance).is_some())
}

/// The payload of the compressed block at the start of `bytes`, and the length of its frame.
fn compressed(
    file: &TableFile,
    at: u64,
    bytes: &[u8],
    forms: Forms,
    dictionary: Option<&Dictionary>,
    allowance: &mut Allowance,
) -> Option<(Bytes, usize)> {
    let bytes = bytes.get(..forms.compressed_bytes.min(bytes.len()))?;
    let stream = bytes.get(LENGTH_BYTES..).filter(|_| forms.payload_bytes > 0)?;
    let framed = |stream_bytes: usize, expected: Compression, allowance: &mut Allowance| {
        let frame = bytes.get(..(LENGTH_BYTES + FRAME_BYTES).checked_add(stream_bytes)?)?;
        let (stored, compression) = sealed(file, at, frame, allowance)?;
        let payload = match compression == expected {
            true => decompress(compression, stored, forms.payload_bytes, dictionary).ok()?,
            false => return None,
        };
        (payload.first() == Some(&LAYOUT_TAGGED)).then(|| (Bytes::from(payload), frame.len()))
    };
    if stream.starts_with(&ZSTD_MAGIC) && allowance.takes(stream.len() as u64) {
        if let Some(stream_bytes) = zstd_stream_bytes(stream) {
            if let Some(found) = framed(stream_bytes, Compression::Zstd, allowance) {
                return Some(found);
            }
        }
    }
    if !allowance.has(2 * bytes.len() as u64) {
        return None;
    }
    let (walked, stream_bytes) = lz4_bytes(stream, forms.payload_bytes);
    allowance.takes(walked as u64);
    framed(stream_bytes?, Compression::Lz4, allowance)
}

/// The payload of the uncompressed block at the start of `bytes`, and the length of its frame.
fn stored(
    file: &TableFile,
    at: u64,
    bytes: &[u8],
    forms: Forms,
    allowance: &mut Allowance,
) -> Option<(Bytes, usize)> {
    let bytes = bytes.get(..forms.stored_bytes.min(bytes.len()))?;
    let salt = |hash: u64| salted(file.birth, at, hash);
    let mut hasher = XxHash3_64::new();
    let mut hashed = 0;
    for payload_bytes in BLOCK_HEADER_BYTES..(bytes.len() + 1).saturating_sub(FRAME_BYTES) {
        let covered = payload_bytes + 1;
        if bytes.get(payload_bytes) != Some(&Compression::None.as_byte()) {
            continue;
        }
        let stated =
            bytes.get(covered..).and_then(<[u8]>::first_chunk).map(|sum| u32::from_le_bytes(*sum))?;
        if !allowance.takes((covered - hashed) as u64 + END_BYTES) {
            return None;
        }
        hasher.write(bytes.get(hashed..covered)?);
        hashed = covered;
        if salt(hasher.finish()) == stated {
            let payload = Bytes::copy_from_slice(bytes.get(..payload_bytes)?);
            return Some((payload, payload_bytes + FRAME_BYTES));
        }
    }
    None
}

/// The number of bytes walked of the LZ4 block at the start of `bytes` and, if it expands to
/// `payload_bytes`, its length.
fn lz4_bytes(bytes: &[u8], payload_bytes: usize) -> (usize, Option<usize>) {
    let mut at = 0;
    let end = walk_lz4(bytes, payload_bytes, &mut at);
    (at.min(bytes.len()), end)
}

/// As [`lz4_bytes`]. A sequence is a token, literals, and a copy of earlier output; the last one
/// has only literals.
fn walk_lz4(bytes: &[u8], payload_bytes: usize, at: &mut usize) -> Option<usize> {
    let mut made = 0usize;
    loop {
        let token = *bytes.get(*at)?;
        *at += 1;
        let literals = lz4_length(bytes, token >> 4, at)?;
        *at += literals;
        made += literals;
        if *at > bytes.len() || made >= payload_bytes {
            return (*at <= bytes.len() && made == payload_bytes).then_some(*at);
        }
        let distance = u16::from_le_bytes(*bytes.get(*at..)?.first_chunk()?);
        *at += 2;
        if distance == 0 || usize::from(distance) > made {
            return None;
        }
        made += lz4_length(bytes, token & 15, at)? + 4;
    }
}

/// A length that starts in a token and continues in further bytes if it is long.
fn lz4_length(bytes: &[u8], begun: u8, at: &mut usize) -> Option<usize> {
    let mut length = usize::from(begun);
    let mut is_open = begun == 15;
    while is_open {
        let more = *bytes.get(*at)?;
        *at += 1;
        length += usize::from(more);
        is_open = more == u8::MAX;
    }
    Some(length)
}

/// The stored bytes and compression of a frame, if its checksum matches and the allowance suffices.
fn sealed<'b>(
    file: &TableFile,
    at: u64,
    frame: &'b [u8],
    allowance: &mut Allowance,
) -> Option<(&'b [u8], Compression)> {
    let (covered, stated) = frame.split_last_chunk::<4>()?;
    let (byte, stored) = covered.split_last()?;
    let compression = Compression::from_byte(*byte)?;
    if !allowance.takes(covered.len() as u64) {
        return None;
    }
    (checksum(file.birth, at, covered) == u32::from_le_bytes(*stated)).then_some((stored, compression))
}

/// The last frame before `end` of a plain block, with this number of entries if it is given, whose
/// payload `take` accepts; and its offset.
pub(super) fn frame_before<T>(
    file: &TableFile,
    end: u64,
    entries: Option<u64>,
    take: impl Fn(Bytes) -> Option<T>,
) -> Result<Option<(u64, T)>> {
    let from = end.saturating_sub(SECTION_BYTES_MAX);
    let bytes = file.read(from, end - from, "footer")?;
    let mut allowance = Allowance::new(SECTION_ALLOWED);
    for start in (0..bytes.len()).rev() {
        let Some([LAYOUT_PLAIN, 0 | 1, 0, 0, c0, c1, c2, c3]) =
            bytes.get(start..).and_then(|rest| rest.get(..8))
        else {
            continue;
        };
        let count = u64::from(u32::from_le_bytes([*c0, *c1, *c2, *c3]));
        if entries.is_some_and(|entries| entries != count) {
            continue;
        }
        let at = from + start as u64;
        if let Some((payload, Compression::None)) =
            bytes.get(start..).and_then(|frame| sealed(file, at, frame, &mut allowance))
        {
            if let Some(taken) = take(Bytes::copy_from_slice(payload)) {
                return Ok(Some((at, taken)));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_lz4_ends_where_its_payload_is_whole() {
        let payloads: [Vec<u8>; 5] = [
            b"the same words, the same words, ".repeat(100),
            vec![0; 5_000],
            (0..900u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect(),
            b"ab".repeat(8),
            [vec![7; 300], b"an end of its own".to_vec()].concat(),
        ];
        for payload in payloads {
            let stream = lz4_flex::block::compress(&payload);
            let followed = [stream.as_slice(), &[0x1f; 40]].concat();
            for bytes in [&stream, &followed] {
                let (walked, end) = lz4_bytes(bytes, payload.len());
                assert_eq!((walked, end), (stream.len(), Some(stream.len())), "{} bytes", payload.len());
            }
            assert_eq!(lz4_bytes(&stream, payload.len() + 1).1, None);
            assert_eq!(lz4_bytes(&stream[..stream.len() - 1], payload.len()).1, None);
        }
        assert_eq!(lz4_bytes(b"", 16), (0, None));
    }
}
