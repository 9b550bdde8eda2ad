//! Properties: the metadata of a table, readable without its data.
//!
//! One [block](crate::block) whose keys are names, sorted; numbers are little-endian. A reader
//! ignores unknown names and requires those below. `upper` is absent when a range tombstone has no
//! end, `oldest_tombstone` when there is no tombstone or its time is not known (older tables),
//! `expiring`, `expiring_bytes` and `expiry_times` when no entry expires, `prefix_extractor` and
//! `filter_prefixes` when the filter holds no prefixes, `keys` when there is a filter,
//! `value_files` when no entry refers to a value file, `keys` and `partitions` in tables of older
//! builds. An extractor that this build does not know is as none: nothing asks the filter for
//! prefixes then.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use shamba_key::{EntryKind, Expiry, Prefix, SeqNo};

use super::origin::{self, Origin};
use super::partitions::PartitionSummary;
use crate::block::{Block, BlockBuilder};
use crate::compression::Compression;
use crate::content::ContentDigest;
use crate::expiring::{ExpiringEntries, PARTS};
use crate::value_uses::{TableValueUse, decode_uses};

const PREFIX_EXTRACTOR: &str = "prefix_extractor";
const FILTER_PREFIXES: &str = "filter_prefixes";
const KEYS: &str = "keys";
const VALUE_FILES: &str = "value_files";
const PARTITIONS: &str = "partitions";

/// The properties of a table.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Properties {
    pub(crate) entries: u64,
    pub(crate) deletes: u64,
    pub(crate) range_deletes: u64,
    pub(crate) data_blocks: u64,
    pub(crate) filter_keys: u64,
    /// Distinct keys of the entries; `None` in tables of older builds without a filter.
    pub(crate) keys: Option<u64>,
    /// The extractor of the prefixes that the filter holds.
    pub(crate) prefix: Option<Prefix>,
    /// Number of these prefixes that are not keys too.
    pub(crate) filter_prefixes: u64,
    pub(crate) raw_key_bytes: u64,
    pub(crate) raw_value_bytes: u64,
    pub(crate) smallest: Bytes,
    pub(crate) upper: Option<Bytes>,
    pub(crate) smallest_seq: SeqNo,
    pub(crate) largest_seq: SeqNo,
    pub(crate) content: ContentDigest,
    pub(crate) bits_per_key: f64,
    pub(crate) block_bytes: u32,
    pub(crate) compression: Compression,
    pub(crate) oldest_tombstone_ms: Option<u64>,
    pub(crate) expiring: Option<ExpiringEntries>,
    /// References to value files, in ascending order of the files.
    pub(crate) value_files: Arc<[TableValueUse]>,
    /// One for each index partition. Only while the table is written or its index is loaded.
    pub(crate) partitions: Vec<PartitionSummary>,
}

impl Properties {
    /// The payload of the section, with the table's origin if it is known.
    pub(crate) fn encode(&self, origin: Option<&Origin>) -> Vec<u8> {
        let mut named: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
        for (name, number) in [
            ("entries", self.entries),
            ("deletes", self.deletes),
            ("range_deletes", self.range_deletes),
            ("data_blocks", self.data_blocks),
            ("filter_keys", self.filter_keys),
            ("raw_key_bytes", self.raw_key_bytes),
            ("raw_value_bytes", self.raw_value_bytes),
            ("smallest_seq", self.smallest_seq.0),
            ("largest_seq", self.largest_seq.0),
            ("bits_per_key", self.bits_per_key.to_bits()),
        ] {
            named.insert(name, number.to_le_bytes().to_vec());
        }
        named.insert("block_bytes", self.block_bytes.to_le_bytes().to_vec());
        named.insert("compression", vec![self.compression.as_byte()]);
        named.insert("content", self.content.to_u128().to_le_bytes().to_vec());
        named.insert("smallest", self.smallest.to_vec());
        if let Some(upper) = &self.upper {
            named.insert("upper", upper.to_vec());
        }
        if let Some(ms) = self.oldest_tombstone_ms {
            named.insert("oldest_tombstone", ms.to_le_bytes().to_vec());
        }
        // Those of all entries are there.
        if let Some(ExpiringEntries { count, bytes, of_bytes: _, bounds }) = self.expiring {
            named.insert("expiring", count.to_le_bytes().to_vec());
            named.insert("expiring_bytes", bytes.to_le_bytes().to_vec());
            named.insert("expiry_times", bounds.iter().flat_map(|bound| bound.0.to_le_bytes()).collect());
        }
        if !self.value_files.is_empty() {
            named.insert(VALUE_FILES, self.value_files.iter().flat_map(TableValueUse::encode).collect());
        }
        if !self.partitions.is_empty() {
            named.insert(PARTITIONS, self.partitions.iter().flat_map(PartitionSummary::encode).collect());
        }
        // Those of a filter are all keys.
        if let Some(keys) = self.keys.filter(|_| self.bits_per_key <= 0.0) {
            named.insert(KEYS, keys.to_le_bytes().to_vec());
        }
        if let Some(prefix) = self.prefix {
            named.insert(PREFIX_EXTRACTOR, prefix.to_string().into_bytes());
            named.insert(FILTER_PREFIXES, self.filter_prefixes.to_le_bytes().to_vec());
        }
        if let Some(origin) = origin {
            named.insert(origin::NUMBER, origin.keyspace.to_le_bytes().to_vec());
            named.insert(origin::NAME, origin.name.clone().into_bytes());
        }
        let mut block = BlockBuilder::new();
        for (name, value) in named {
            block.push(name.as_bytes(), SeqNo::ZERO, EntryKind::Put, &value);
        }
        block.finish()
    }

    /// Decodes the section's payload.
    pub(crate) fn decode(payload: Bytes) -> Result<Self, String> {
        let block = Block::parse(payload)?;
        let raw = |name: &str| {
            let found = block.entry(block.lower_bound(name.as_bytes(), SeqNo::MAX));
            found.filter(|entry| entry.key == name.as_bytes()).map(|entry| entry.value)
        };
        fn fixed<const N: usize>(name: &str, value: Option<&[u8]>) -> Result<[u8; N], String> {
            let value = value.ok_or_else(|| format!("property {name} is missing"))?;
            value.try_into().map_err(|_| format!("property {name} has {} bytes, expected {N}", value.len()))
        }
        let number = |name: &str| Ok::<_, String>(u64::from_le_bytes(fixed(name, raw(name))?));
        let [compression] = fixed("compression", raw("compression"))?;
        let bits_per_key = f64::from_bits(number("bits_per_key")?);
        let prefix = raw(PREFIX_EXTRACTOR).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        let properties = Self {
            prefix,
            filter_prefixes: match prefix {
                None => 0,
                Some(_) => number(FILTER_PREFIXES)?,
            },
            entries: number("entries")?,
            deletes: number("deletes")?,
            range_deletes: number("range_deletes")?,
            data_blocks: number("data_blocks")?,
            filter_keys: number("filter_keys")?,
            keys: match raw(KEYS) {
                _ if bits_per_key > 0.0 => Some(number("filter_keys")?),
                None => None,
                Some(_) => Some(number(KEYS)?),
            },
            raw_key_bytes: number("raw_key_bytes")?,
            raw_value_bytes: number("raw_value_bytes")?,
            smallest: Bytes::copy_from_slice(raw("smallest").ok_or("property smallest is missing")?),
            upper: raw("upper").map(Bytes::copy_from_slice),
            smallest_seq: SeqNo(number("smallest_seq")?),
            largest_seq: SeqNo(number("largest_seq")?),
            content: ContentDigest::from_u128(u128::from_le_bytes(fixed("content", raw("content"))?)),
            bits_per_key,
            block_bytes: u32::from_le_bytes(fixed("block_bytes", raw("block_bytes"))?),
            compression: Compression::from_byte(compression)
                .ok_or_else(|| format!("unknown compression {compression}"))?,
            oldest_tombstone_ms: match raw("oldest_tombstone") {
                None => None,
                present => Some(u64::from_le_bytes(fixed("oldest_tombstone", present)?)),
            },
            expiring: match raw("expiring") {
                None => None,
                Some(_) => {
                    let times: [u8; 72] = fixed("expiry_times", raw("expiry_times"))?;
                    let mut bounds = [Expiry(0); PARTS + 1];
                    for (bound, bytes) in bounds.iter_mut().zip(times.chunks_exact(8)) {
                        bound.0 = bytes.try_into().map_or(0, u64::from_le_bytes);
                    }
                    let (count, bytes) = (number("expiring")?, number("expiring_bytes")?);
                    let of_bytes = number("raw_key_bytes")?.saturating_add(number("raw_value_bytes")?);
                    Some(ExpiringEntries { count, bytes, of_bytes, bounds })
                }
            },
            value_files: decode_uses(raw(VALUE_FILES).unwrap_or_default())?,
            partitions: PartitionSummary::decode_all(raw(PARTITIONS).unwrap_or_default())?,
        };
        properties.check()?;
        Ok(properties)
    }

    /// Replaces the bounds by these if they are equal, to share their memory.
    pub(crate) fn share_bounds(&mut self, bounds: Option<(Bytes, Option<Bytes>)>) {
        if let Some((smallest, upper)) = bounds {
            if (&smallest, &upper) == (&self.smallest, &self.upper) {
                (self.smallest, self.upper) = (smallest, upper);
            }
        }
    }

    /// Total length of both bounds.
    pub(crate) fn bounds_bytes(&self) -> usize {
        self.smallest.len() + self.upper.as_ref().map_or(0, Bytes::len)
    }

    /// Checks what holds for any entries.
    fn check(&self) -> Result<(), String> {
        if self.deletes > self.entries
            || self.filter_keys > self.entries
            || self.filter_prefixes > self.filter_keys
            || self.keys.is_some_and(|keys| keys > self.entries)
        {
            return Err(format!(
                "{} deletes, {} filter keys, {} prefixes and {} keys among {} entries",
                self.deletes,
                self.filter_keys,
                self.filter_prefixes,
                self.keys.unwrap_or(0),
                self.entries
            ));
        }
        if let Some(expiring) = &self.expiring {
            expiring.check(self.entries - self.deletes)?;
        }
        let values = self.value_files.iter().try_fold(0u64, |sum, one| sum.checked_add(one.values));
        if values.is_none_or(|values| values > self.entries - self.deletes) {
            return Err(format!("more references to value files than the {} entries", self.entries));
        }
        if self.upper.as_ref().is_some_and(|upper| *upper <= self.smallest) {
            return Err("the upper bound is not above the smallest key".to_owned());
        }
        if self.smallest_seq > self.largest_seq || self.largest_seq > SeqNo::MAX {
            return Err(format!("sequence numbers {} to {}", self.smallest_seq, self.largest_seq));
        }
        if !self.bits_per_key.is_finite() {
            return Err(format!("{} filter bits per key", self.bits_per_key));
        }
        let block_bytes = usize::try_from(self.block_bytes).unwrap_or(usize::MAX);
        if !crate::format::BLOCK_BYTES_ALLOWED.contains(&block_bytes) {
            return Err(format!("blocks of {block_bytes} bytes"));
        }
        Ok(())
    }
}
