//! Dictionaries for zstd: bytes that are common in the data of a table.
//!
//! A data block has a few KiB, so a compressor finds little in it to refer to. With a dictionary it
//! refers to bytes that compressor and decompressor both have. A dictionary is made of pieces of
//! blocks that a compaction reads, written at the start of each of its tables (a frame behind the
//! header page, which states its length), and loaded when a table is opened. It is zstd's raw
//! content: any bytes are one. Training one instead would save 4 to 8 % more space, and take 12 MiB
//! of memory and 25 to 65 ms (decision 43).
//!
//! Invariant: all data blocks of a table with a dictionary that are compressed by zstd are
//! compressed with it. Chunks of large values are not: they are long enough without.
//!
//! Not here: the choice of samples (`shamba::scheduler`), the codec ([`super`]), loading it
//! (`crate::reader::load`).

use std::sync::Arc;

use super::{Compression, Compressor};

/// Maximum length of a dictionary, in bytes: longer ones save no more (decision 43), and every open
/// table holds one.
pub const DICTIONARY_BYTES_MAX: usize = 64 << 10;
/// Minimum length of a dictionary, in bytes.
pub const DICTIONARY_BYTES_MIN: usize = 256;
/// Number of samples for a dictionary: more would not make a better one.
pub const DICTIONARY_SAMPLES: usize = 32;
/// Minimum number of samples; with fewer there is nothing to find out.
const SAMPLES_MIN: usize = 8;
/// Minimum length of a piece: shorter ones hold no whole record.
const PIECE_BYTES_MIN: usize = 512;
/// Divisor: a dictionary that saves less than this fraction of compressed blocks is not used,
/// because it takes memory and compresses more slowly.
const SAVED_SHARE_MIN: usize = 16;
/// Bytes that zstd keeps for a prepared dictionary besides its content.
const ZSTD_TABLES_BYTES: usize = 28 << 10;

/// A dictionary to compress with. Clones share it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dictionary(Arc<[u8]>);

impl Dictionary {
    /// A dictionary of at most `bytes_max` from samples of what will be compressed with it:
    /// payloads of data blocks. Every second sample gives a piece, until there is enough; the
    /// others measure what that saves. `None` if there are too few samples, or if it saves less
    /// than a sixteenth of their compressed length.
    pub fn from_samples(samples: &[impl AsRef<[u8]>], bytes_max: usize) -> Option<Self> {
        if samples.len() < SAMPLES_MIN {
            return None;
        }
        let bytes_max = bytes_max.min(DICTIONARY_BYTES_MAX);
        let piece_bytes = (bytes_max / samples.len().div_ceil(2)).max(PIECE_BYTES_MIN);
        let given = samples.iter().step_by(2).map(|sample| middle(sample.as_ref(), piece_bytes));
        let content: Vec<u8> = given.flatten().copied().take(bytes_max).collect();
        debug_assert!(content.len() <= bytes_max, "a dictionary of {} bytes", content.len());
        if content.len() < DICTIONARY_BYTES_MIN {
            return None;
        }
        let dictionary = Self(content.into());
        let compressed = |with: Option<&Self>| {
            let mut compressor = Compressor::with_dictionary(Compression::Zstd, with).ok()?;
            let tested = samples.iter().skip(1).step_by(2);
            let lengths =
                tested.map(|sample| compressor.compress(sample.as_ref()).map(|(bytes, _)| bytes.len()));
            lengths.sum::<std::io::Result<usize>>().ok()
        };
        let (with, without) = (compressed(Some(&dictionary))?, compressed(None)?);
        (with < without - without / SAVED_SHARE_MIN).then_some(dictionary)
    }

    /// A dictionary of these bytes, whatever they save.
    #[cfg(test)]
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Its bytes, as stored in tables.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// About the memory that it takes in each open table.
    pub fn open_bytes(&self) -> u64 {
        (self.0.len() + ZSTD_TABLES_BYTES) as u64
    }
}

/// At most `bytes` from the middle of a block: its start has tags, which repeat nowhere.
fn middle(block: &[u8], bytes: usize) -> &[u8] {
    let from = block.len().saturating_sub(bytes) / 2;
    block.get(from..).map_or(&[], |rest| rest.get(..bytes).unwrap_or(rest))
}

/// A dictionary of an open table, prepared for decompression.
#[derive(Debug)]
pub(crate) struct Decoding(codec::Prepared);

impl Decoding {
    /// Prepares these bytes; `None` if zstd does not accept them, or in a build without it.
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        codec::Prepared::new(bytes).map(Self)
    }

    /// Its length in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }

    /// Its length as stored.
    pub(crate) fn stored_bytes(&self) -> usize {
        self.0.stored_bytes()
    }

    #[cfg(feature = "zstd")]
    pub(crate) fn prepared(&self) -> &zstd::dict::DecoderDictionary<'static> {
        self.0.prepared()
    }
}

#[cfg(feature = "zstd")]
mod codec {
    //! Zstandard.

    use zstd::dict::DecoderDictionary;

    pub(super) struct Prepared {
        prepared: DecoderDictionary<'static>,
        stored_bytes: usize,
    }

    impl Prepared {
        pub(super) fn new(bytes: &[u8]) -> Option<Self> {
            Some(Self { prepared: DecoderDictionary::try_copy(bytes).ok()?, stored_bytes: bytes.len() })
        }

        pub(super) fn memory_bytes(&self) -> usize {
            self.prepared.as_ddict().sizeof()
        }

        pub(super) fn stored_bytes(&self) -> usize {
            self.stored_bytes
        }

        pub(super) fn prepared(&self) -> &DecoderDictionary<'static> {
            &self.prepared
        }
    }

    impl std::fmt::Debug for Prepared {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Prepared").field("stored_bytes", &self.stored_bytes).finish_non_exhaustive()
        }
    }
}

#[cfg(not(feature = "zstd"))]
mod codec {
    //! Stubs for a build without Zstandard: there are no dictionaries.

    use std::convert::Infallible;

    /// Never constructed.
    #[derive(Debug)]
    pub(super) struct Prepared(Infallible);

    impl Prepared {
        pub(super) fn new(_bytes: &[u8]) -> Option<Self> {
            None
        }

        pub(super) fn memory_bytes(&self) -> usize {
            match self.0 {}
        }

        pub(super) fn stored_bytes(&self) -> usize {
            match self.0 {}
        }
    }
}

#[cfg(test)]
#[cfg(feature = "zstd")]
mod tests {
    use shamba_env::{Rng, SeededRng};

    use super::*;
    use crate::compression::decompress;

    /// Blocks of records with the same names of fields and random numbers.
    fn samples(count: usize, seed: u64) -> Vec<Vec<u8>> {
        let rng = SeededRng::new(seed);
        let record = || {
            format!(
                r#"{{"customer":{},"street":"Karl-Marx-Allee {}","city":"Berlin","balance_cents":{}}}"#,
                rng.next_u64() % 1_000_000,
                rng.next_u64() % 100,
                rng.next_u64() % 10_000_000
            )
        };
        (0..count).map(|_| (0..4).map(|_| record()).collect::<String>().into_bytes()).collect()
    }

    #[test]
    fn blocks_of_records_are_smaller_with_a_dictionary_and_need_it() {
        let dictionary = Dictionary::from_samples(&samples(32, 1), 4 << 10).expect("it pays");
        assert!((2 << 10..=4 << 10).contains(&dictionary.bytes().len()));
        let prepared = Decoding::new(dictionary.bytes()).expect("prepared");
        let compress = |payload: &[u8], with| {
            let mut compressor = Compressor::with_dictionary(Compression::Zstd, with).expect("codec");
            compressor.compress(payload).expect("compressed").0.to_vec()
        };
        for payload in samples(20, 2) {
            let (with, without) = (compress(&payload, Some(&dictionary)), compress(&payload, None));
            assert!(4 * with.len() < 3 * without.len(), "{} of {}", with.len(), without.len());
            let back =
                |stored: &[u8], dictionary| decompress(Compression::Zstd, stored, payload.len(), dictionary);
            assert_eq!(back(&with, Some(&prepared)).expect("payload"), payload);
            assert_eq!(back(&without, Some(&prepared)).expect("it refers to nothing"), payload);
            assert!(back(&with, None).is_err(), "without the dictionary it cannot be read");
        }
        // Long payloads are decompressed in pieces.
        let long = samples(8_000, 3).concat();
        assert!(long.len() > 1 << 20);
        let stored = compress(&long, Some(&dictionary));
        assert_eq!(decompress(Compression::Zstd, &stored, long.len(), Some(&prepared)), Ok(long));
    }

    #[test]
    fn there_is_none_for_few_samples_and_for_data_without_structure() {
        assert_eq!(Dictionary::from_samples(&samples(7, 1), 4 << 10), None);
        assert_eq!(Dictionary::from_samples(&[] as &[Vec<u8>], 4 << 10), None);
        let rng = SeededRng::new(4);
        let hex = |_| (0..60).map(|_| format!("{:016x}", rng.next_u64())).collect::<String>().into_bytes();
        let noise: Vec<Vec<u8>> = (0..200).map(hex).collect();
        assert_eq!(Dictionary::from_samples(&noise, 4 << 10), None, "it would save nothing");
        assert_eq!(Dictionary::from_samples(&vec![b"".to_vec(); 100], 4 << 10), None);
        assert_eq!(Dictionary::from_samples(&samples(32, 1), 100), None, "it is too short");
        let longest = Dictionary::from_samples(&vec![samples(500, 1).concat(); 8], 1 << 20);
        assert!(longest.expect("it pays").bytes().len() <= DICTIONARY_BYTES_MAX);
    }
}
