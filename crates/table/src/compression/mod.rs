//! Compression of one block.
//!
//! ```text
//! none   the payload as it is
//! other  u32 LE  length of the payload, then the codec's own bytes
//! ```
//!
//! A block that compression does not make at least an eighth smaller is stored uncompressed:
//! reading it costs no decompression, and it may start on a page. The stated length is checked
//! against the caller's limit, and against the codec's maximum ratio, before anything is allocated.
//!
//! In a table with a dictionary, zstd compresses data blocks with it ([`dictionary`]).

mod dictionary;

use std::fmt;
use std::str::FromStr;

pub use self::dictionary::{DICTIONARY_BYTES_MAX, DICTIONARY_BYTES_MIN, DICTIONARY_SAMPLES, Dictionary};

/// Compression of blocks. The byte values are stored in files: never reuse one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Compression {
    /// None: blocks start on a page if the padding is short.
    #[default]
    None = 0,
    /// LZ4, block format: fast to write and to read.
    Lz4 = 1,
    /// Zstandard, level 3: smaller, slower to read. Needs the feature `zstd`, which is on by
    /// default; a build without it returns `Unsupported` (see [`Compression::is_built`]).
    Zstd = 2,
}

/// One byte of LZ4 expands to at most 255 bytes (the format's own bound).
const LZ4_RATIO_MAX: usize = 255;

/// Larger payloads are decompressed in pieces, so that memory is allocated only for bytes that were
/// decompressed.
const WHOLE_BYTES_MAX: usize = 1 << 20;

impl Compression {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::None, Self::Lz4, Self::Zstd];

    /// The name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// The kind with this stored byte; `None` for an unknown one.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Whether this build can write and read it: [`Compression::Zstd`] needs the feature `zstd`.
    pub fn is_built(self) -> bool {
        self != Self::Zstd || cfg!(feature = "zstd")
    }

    /// The stored byte.
    pub fn as_byte(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Compression {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown compression {name:?} (known: {known})")
        })
    }
}

/// The same kind for all levels, where a list goes by level.
impl From<Compression> for Vec<Compression> {
    fn from(kind: Compression) -> Self {
        vec![kind]
    }
}

/// Compressor of blocks that reuses the codec's workspace.
pub(crate) struct Compressor {
    kind: Compression,
    zstd: Option<codec::Compressor>,
    scratch: Vec<u8>,
}

impl Compressor {
    pub(crate) fn new(kind: Compression) -> std::io::Result<Self> {
        Self::with_dictionary(kind, None)
    }

    /// Zstd compresses with `dictionary`, if there is one; other kinds do not use it.
    pub(crate) fn with_dictionary(
        kind: Compression,
        dictionary: Option<&Dictionary>,
    ) -> std::io::Result<Self> {
        let dictionary = dictionary.map_or(&[][..], Dictionary::bytes);
        let zstd = match kind {
            Compression::Zstd => Some(codec::Compressor::new(dictionary)?),
            Compression::None | Compression::Lz4 => None,
        };
        Ok(Self { kind, zstd, scratch: Vec::new() })
    }

    /// Bytes in memory, without the codec's workspace.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.scratch.capacity()
    }

    /// The bytes to store for `payload`, and their compression.
    pub(crate) fn compress<'a>(&'a mut self, payload: &'a [u8]) -> std::io::Result<(&'a [u8], Compression)> {
        let compressed = match (self.kind, &mut self.zstd) {
            (Compression::None, _) => return Ok((payload, Compression::None)),
            (Compression::Zstd, Some(codec)) => codec.compress(payload)?,
            (Compression::Lz4 | Compression::Zstd, _) => lz4_flex::block::compress(payload),
        };
        let Ok(payload_bytes) = u32::try_from(payload.len()) else {
            return Ok((payload, Compression::None));
        };
        if compressed.len() + 4 > payload.len() - payload.len() / 8 {
            return Ok((payload, Compression::None));
        }
        debug_assert!(
            self.kind != Compression::None,
            "a payload of a table without compression is compressed"
        );
        self.scratch.clear();
        self.scratch.extend_from_slice(&payload_bytes.to_le_bytes());
        self.scratch.extend_from_slice(&compressed);
        Ok((&self.scratch, self.kind))
    }
}

/// The payload length that `stored` states, at most `limit_bytes`; checked against the maximum that
/// its bytes can hold.
pub(crate) fn payload_bytes(kind: Compression, stored: &[u8], limit_bytes: usize) -> Result<usize, String> {
    if kind == Compression::None {
        return if stored.len() <= limit_bytes {
            Ok(stored.len())
        } else {
            Err(format!("{} bytes, at most {limit_bytes} expected", stored.len()))
        };
    }
    let (stated, compressed) = stored.split_first_chunk::<4>().ok_or("too short for the payload's length")?;
    let payload_bytes =
        usize::try_from(u32::from_le_bytes(*stated)).map_err(|_| "payload length above the address space")?;
    if payload_bytes > limit_bytes {
        return Err(format!("states a payload of {payload_bytes} bytes, at most {limit_bytes} expected"));
    }
    if kind == Compression::Lz4 && payload_bytes > compressed.len().saturating_mul(LZ4_RATIO_MAX) {
        return Err(format!("states {payload_bytes} bytes, more than lz4 can hold in its bytes"));
    }
    Ok(payload_bytes)
}

/// Decompresses the payload in `stored`, of at most `limit_bytes`; zstd with `dictionary`, if the
/// payload was compressed with one.
pub(crate) fn decompress(
    kind: Compression,
    stored: &[u8],
    limit_bytes: usize,
    dictionary: Option<&Dictionary>,
) -> Result<Vec<u8>, String> {
    let payload_bytes = payload_bytes(kind, stored, limit_bytes)?;
    if kind == Compression::Zstd && payload_bytes > WHOLE_BYTES_MAX {
        let payload =
            codec::decompress_in_pieces(stored.get(4..).unwrap_or_default(), payload_bytes, dictionary)?;
        return exactly(payload.len(), payload_bytes).map(|()| payload);
    }
    let mut payload = vec![0; payload_bytes];
    decompress_into(kind, stored, &mut payload, dictionary)?;
    Ok(payload)
}

/// Decompresses the payload in `stored` into `out`, whose length is that of [`payload_bytes`].
pub(crate) fn decompress_into(
    kind: Compression,
    stored: &[u8],
    out: &mut [u8],
    dictionary: Option<&Dictionary>,
) -> Result<(), String> {
    let expected = out.len();
    let compressed = stored.get(4..).unwrap_or_default();
    let found = match kind {
        Compression::None if stored.len() == expected => {
            out.copy_from_slice(stored);
            expected
        }
        Compression::None => stored.len(),
        Compression::Lz4 => {
            lz4_flex::block::decompress_into(compressed, out).map_err(|error| format!("lz4: {error}"))?
        }
        Compression::Zstd => codec::decompress(compressed, out, dictionary)?,
    };
    exactly(found, expected)
}

fn exactly(found: usize, expected: usize) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    Err(format!("states a payload of {expected} bytes, holds {found}"))
}

/// Message about [`Compression::Zstd`] in a build without it.
pub(crate) const ZSTD_IS_MISSING: &str =
    "zstd compression is not part of this build: enable the feature \"zstd\" of shamba";

/// Length of the zstd stream at the start of `bytes`; `None` if there is none, or in a build
/// without zstd.
pub(crate) fn zstd_stream_bytes(bytes: &[u8]) -> Option<usize> {
    codec::stream_bytes(bytes)
}

#[cfg(feature = "zstd")]
mod codec {
    //! Zstandard.

    use std::cell::RefCell;
    use std::io::{self, Read};

    use zstd::zstd_safe::{DCtx, get_error_name};

    use super::Dictionary;

    /// The level with most of zstd's compression ratio at a high speed.
    const ZSTD_LEVEL: i32 = 3;

    pub(super) struct Compressor(zstd::bulk::Compressor<'static>);

    impl Compressor {
        /// A compressor with this dictionary; empty: without one.
        pub(super) fn new(dictionary: &[u8]) -> io::Result<Self> {
            zstd::bulk::Compressor::with_dictionary(ZSTD_LEVEL, dictionary).map(Self)
        }

        pub(super) fn compress(&mut self, payload: &[u8]) -> io::Result<Vec<u8>> {
            self.0.compress(payload)
        }
    }

    thread_local! {
        // Creating zstd's context costs more than decompressing a block with it.
        static UNZSTD: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
    }

    pub(super) fn decompress(
        compressed: &[u8],
        out: &mut [u8],
        dictionary: Option<&Dictionary>,
    ) -> Result<usize, String> {
        UNZSTD.with_borrow_mut(|slot| {
            let context = match slot {
                Some(context) => context,
                None => slot.insert(DCtx::try_create().ok_or("zstd: no memory for its context")?),
            };
            let decompressed = match dictionary {
                Some(dictionary) => context.decompress_using_dict(out, compressed, dictionary.bytes()),
                None => context.decompress(out, compressed),
            };
            decompressed.map_err(|code| format!("zstd: {}", get_error_name(code)))
        })
    }

    pub(super) fn decompress_in_pieces(
        compressed: &[u8],
        payload_bytes: usize,
        dictionary: Option<&Dictionary>,
    ) -> Result<Vec<u8>, String> {
        let dictionary = dictionary.map_or(&[][..], Dictionary::bytes);
        let mut payload = Vec::new();
        zstd::stream::read::Decoder::with_dictionary(compressed, dictionary)
            .and_then(|codec| codec.take(payload_bytes as u64 + 1).read_to_end(&mut payload))
            .map_err(|error| format!("zstd: {error}"))?;
        Ok(payload)
    }

    pub(super) fn stream_bytes(bytes: &[u8]) -> Option<usize> {
        zstd::zstd_safe::find_frame_compressed_size(bytes).ok()
    }
}

#[cfg(not(feature = "zstd"))]
mod codec {
    //! Stubs for a build without Zstandard: every call fails.

    use std::convert::Infallible;
    use std::io;

    use super::{Dictionary, ZSTD_IS_MISSING};

    /// Never constructed.
    pub(super) struct Compressor(Infallible);

    impl Compressor {
        pub(super) fn new(_dictionary: &[u8]) -> io::Result<Self> {
            Err(io::Error::new(io::ErrorKind::Unsupported, ZSTD_IS_MISSING))
        }

        pub(super) fn compress(&mut self, _payload: &[u8]) -> io::Result<Vec<u8>> {
            match self.0 {}
        }
    }

    pub(super) fn decompress(
        _compressed: &[u8],
        _out: &mut [u8],
        _dictionary: Option<&Dictionary>,
    ) -> Result<usize, String> {
        Err(ZSTD_IS_MISSING.to_owned())
    }

    pub(super) fn decompress_in_pieces(
        _compressed: &[u8],
        _payload_bytes: usize,
        _dictionary: Option<&Dictionary>,
    ) -> Result<Vec<u8>, String> {
        Err(ZSTD_IS_MISSING.to_owned())
    }

    pub(super) fn stream_bytes(_bytes: &[u8]) -> Option<usize> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(kind: Compression, payload: &[u8]) -> (Vec<u8>, Compression) {
        let mut compressor = Compressor::new(kind).expect("codec");
        let (bytes, used) = compressor.compress(payload).expect("compressed");
        (bytes.to_vec(), used)
    }

    #[test]
    fn what_shrinks_round_trips_and_what_does_not_is_kept_as_it_is() {
        let soft = b"the same words, the same words, ".repeat(100);
        let hard: Vec<u8> =
            (0..3_000u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53) as u8).collect();
        let big = b"0123456789abcdef".repeat(200_000);
        for kind in Compression::ALL.into_iter().filter(|kind| kind.is_built()) {
            for payload in [&soft, &hard, &big] {
                let (bytes, used) = stored(kind, payload);
                assert!(used == Compression::None || bytes.len() <= payload.len() - payload.len() / 8);
                assert_eq!(decompress(used, &bytes, payload.len(), None).expect("payload"), *payload);
                assert!(decompress(used, &bytes, payload.len() - 1, None).is_err(), "{kind}: over the limit");
            }
            assert_eq!(stored(kind, &soft).1, kind);
            assert_eq!(stored(kind, b"").1, Compression::None);
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert!("gzip".parse::<Compression>().is_err());
    }

    #[test]
    fn a_wrong_length_is_an_error_before_it_is_an_allocation() {
        for kind in [Compression::Lz4, Compression::Zstd].into_iter().filter(|kind| kind.is_built()) {
            let (mut bytes, _) = stored(kind, &b"abcd".repeat(500));
            for stated in [0u32, 1, 1_999, 2_001, u32::MAX] {
                bytes[..4].copy_from_slice(&stated.to_le_bytes());
                assert!(decompress(kind, &bytes, 300 << 20, None).is_err(), "{kind} {stated}");
            }
            for length in 0..bytes.len() {
                let _ = decompress(kind, &bytes[..length], 4_096, None);
            }
        }
    }

    #[cfg(not(feature = "zstd"))]
    #[test]
    fn a_build_without_zstd_refuses_it_and_names_the_feature() {
        assert!(!Compression::Zstd.is_built() && Compression::Lz4.is_built());
        let refused = Compressor::new(Compression::Zstd).err().expect("refused");
        assert_eq!(refused.kind(), std::io::ErrorKind::Unsupported);
        assert!(refused.to_string().contains("feature \"zstd\""), "{refused}");
        let mut stored = 4u32.to_le_bytes().to_vec();
        stored.extend([0; 8]);
        let refused = decompress(Compression::Zstd, &stored, 100, None).expect_err("refused");
        assert!(refused.contains("feature \"zstd\""), "{refused}");
    }
}
