//! Dictionaries for zstd: bytes that are common in the data of a table.
//!
//! A data block has a few KiB, so a compressor finds little in it to refer to. With a dictionary it
//! refers to bytes that compressor and decompressor both have. A dictionary is made of pieces of
//! blocks that a compaction reads, written at the start of each of its tables (a frame behind the
//! header page, which states its length), and loaded when a table is opened. It is zstd's raw
//! content: any bytes are one, and decompression needs no preparation. A trained one would save 4
//! to 8 % more space, and take 11 MiB of memory and 24 to 66 ms to make (decision 43).
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
/// Minimum number of samples: half of them must show what the others save.
const SAMPLES_MIN: usize = 8;
/// Minimum length of a piece: shorter ones hold no whole record.
const PIECE_BYTES_MIN: usize = 512;
/// Divisor: a dictionary that saves less than this fraction of compressed blocks is not used,
/// because it takes memory and compresses more slowly.
const SAVED_SHARE_MIN: usize = 16;

/// A dictionary of zstd. Clones share it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dictionary(Arc<[u8]>);

impl Dictionary {
    /// The dictionary with these bytes.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// A dictionary of at most `bytes_max` from samples of what will be compressed with it:
    /// payloads of data blocks. Every second sample can give a piece, and the others measure what
    /// the pieces save. `None` if there are too few samples, or if a dictionary saves less than a
    /// sixteenth of their compressed length.
    pub fn from_samples(samples: &[impl AsRef<[u8]>], bytes_max: usize) -> Option<Self> {
        if samples.len() < SAMPLES_MIN {
            return None;
        }
        let bytes_max = bytes_max.min(DICTIONARY_BYTES_MAX);
        let givers: Vec<&[u8]> = samples.iter().step_by(2).map(AsRef::as_ref).collect();
        let pieces = (bytes_max / PIECE_BYTES_MIN).clamp(1, givers.len());
        // Evenly spread: the samples are in the order of runs and keys.
        let of_piece = |number: usize| givers.get((2 * number + 1) * givers.len() / (2 * pieces));
        let given = (0..pieces).filter_map(of_piece).map(|giver| middle(giver, bytes_max / pieces));
        let dictionary = Self(given.flatten().copied().collect());
        debug_assert!(dictionary.0.len() <= bytes_max, "a dictionary of {} bytes", dictionary.0.len());
        // A piece is at most a block long.
        if dictionary.0.len() < DICTIONARY_BYTES_MIN / 2 {
            return None;
        }
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

    /// The bytes, as stored in tables.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// At most `bytes` from the middle of a block: its start has tags, which repeat nowhere.
fn middle(block: &[u8], bytes: usize) -> &[u8] {
    let from = block.len().saturating_sub(bytes) / 2;
    block.get(from..).map_or(&[], |rest| rest.get(..bytes).unwrap_or(rest))
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
        let stored = Dictionary::new(dictionary.bytes());
        let compress = |payload: &[u8], with| {
            let mut compressor = Compressor::with_dictionary(Compression::Zstd, with).expect("codec");
            compressor.compress(payload).expect("compressed").0.to_vec()
        };
        for payload in samples(20, 2) {
            let (with, without) = (compress(&payload, Some(&dictionary)), compress(&payload, None));
            assert!(4 * with.len() < 3 * without.len(), "{} of {}", with.len(), without.len());
            let back =
                |stored: &[u8], dictionary| decompress(Compression::Zstd, stored, payload.len(), dictionary);
            assert_eq!(back(&with, Some(&stored)).expect("payload"), payload);
            assert_eq!(back(&without, Some(&stored)).expect("it refers to nothing"), payload);
            assert!(back(&with, None).is_err(), "without the dictionary it cannot be read");
        }
        // Long payloads are decompressed in pieces.
        let long = samples(8_000, 3).concat();
        assert!(long.len() > 1 << 20);
        let compressed = compress(&long, Some(&dictionary));
        assert_eq!(decompress(Compression::Zstd, &compressed, long.len(), Some(&stored)), Ok(long));
    }

    #[test]
    fn pieces_are_of_all_samples() {
        let rng = SeededRng::new(5);
        let hex =
            |bytes: usize| (0..bytes / 16).map(|_| format!("{:016x}", rng.next_u64())).collect::<String>();
        let phrases = [hex(1_024), hex(1_024)];
        // Half of the samples have one phrase in their middle, half the other.
        let block = |i: usize| [hex(512), phrases[i / 16].clone(), hex(512)].concat().into_bytes();
        let samples: Vec<Vec<u8>> = (0..32).map(block).collect();
        for bytes_max in [1 << 10, 4 << 10, 16 << 10] {
            let dictionary = Dictionary::from_samples(&samples, bytes_max).expect("it pays");
            let text = String::from_utf8_lossy(dictionary.bytes()).into_owned();
            let pieces = phrases.each_ref().map(|phrase| text.matches(&phrase[448..576]).count());
            assert!(pieces[0] > 0 && pieces[0] == pieces[1], "{pieces:?} of {bytes_max}");
        }
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
