//! Use of value files by a table: how many values, and how many of their bytes, it refers to.
//!
//! The writer counts them, the table states them in its properties, and the manifest takes them
//! over. So it is known how much of a value file is referenced without reading tables.

use std::sync::Arc;

use crate::id::{BirthId, ValueFileId};

/// References of a table to one value file.
///
/// ```text
/// number u64, birth u64, values u64, stored bytes u64
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableValueUse {
    /// Number of the value file.
    pub file: ValueFileId,
    /// Random id of the value file.
    pub birth: BirthId,
    /// Number of entries that refer to it.
    pub values: u64,
    /// Length of the chunks of their values.
    pub bytes: u64,
}

impl TableValueUse {
    /// Length of the stored form.
    const STORED_BYTES: usize = 32;

    pub(crate) fn encode(&self) -> [u8; Self::STORED_BYTES] {
        let mut bytes = [0; Self::STORED_BYTES];
        let fields = [self.file.0, self.birth.0, self.values, self.bytes];
        for (to, field) in bytes.chunks_exact_mut(8).zip(fields) {
            to.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }
}

/// Decodes the stored forms of uses, in ascending order of the files.
pub(crate) fn decode_uses(stored: &[u8]) -> Result<Arc<[TableValueUse]>, String> {
    let one_bytes = TableValueUse::STORED_BYTES;
    if stored.len() % one_bytes != 0 {
        return Err(format!("uses of value files of {} bytes, not a multiple of {one_bytes}", stored.len()));
    }
    let mut uses: Vec<TableValueUse> = Vec::with_capacity(stored.len() / one_bytes);
    for one in stored.chunks_exact(one_bytes) {
        let mut fields = [0; 4];
        for (field, bytes) in fields.iter_mut().zip(one.chunks_exact(8)) {
            *field = bytes.try_into().map_or(0, u64::from_le_bytes);
        }
        let [file, birth, values, bytes] = fields;
        let found = TableValueUse { file: ValueFileId(file), birth: BirthId(birth), values, bytes };
        if uses.last().is_some_and(|last| last.file >= found.file) {
            return Err(format!("value file {} does not come after the one before it", found.file));
        }
        if values == 0 || bytes < values {
            return Err(format!("{values} values of {bytes} bytes in value file {}", found.file));
        }
        uses.push(found);
    }
    Ok(uses.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(file: u64, values: u64, bytes: u64) -> TableValueUse {
        TableValueUse { file: ValueFileId(file), birth: BirthId(file ^ 0xff), values, bytes }
    }

    fn encoded(uses: &[TableValueUse]) -> Vec<u8> {
        uses.iter().flat_map(TableValueUse::encode).collect()
    }

    #[test]
    fn uses_round_trip_and_those_that_cannot_be_are_refused() {
        let good = [one(0, 1, 10), one(7, 3, 30), one(u64::MAX, u64::MAX, u64::MAX)];
        for count in 0..=good.len() {
            assert_eq!(decode_uses(&encoded(&good[..count])).as_deref(), Ok(&good[..count]));
        }
        for bad in [
            &[one(7, 0, 0)][..],
            &[one(7, 0, 10)],
            &[one(7, 2, 1)],
            &[one(7, 1, 10), one(7, 1, 10)],
            &[one(8, 1, 10), one(7, 1, 10)],
        ] {
            assert!(decode_uses(&encoded(bad)).is_err(), "{bad:?}");
        }
        let stored = encoded(&good);
        for bytes in (0..stored.len()).filter(|bytes| bytes % 32 != 0) {
            assert!(decode_uses(&stored[..bytes]).is_err(), "{bytes} bytes");
        }
    }
}
