//! References to value files in the writer.
//!
//! The value itself was written by a [`crate::ValueFileWriter`], or stays where it was; the table
//! has its reference, and counts of the references to each file.

use std::collections::BTreeMap;
use std::sync::Arc;

use shamba_key::{EntryKind, Expiry, KeyDigest, SeqNo};

use super::TableWriter;
use crate::content::ContentDigest;
use crate::id::{BirthId, ValueFileId};
use crate::value_file::ValueFileRef;
use crate::value_uses::TableValueUse;
use crate::{Error, Result};

/// References of a table, by value file.
#[derive(Default)]
pub(super) struct ValueUses(BTreeMap<ValueFileId, TableValueUse>);

impl ValueUses {
    /// Counts a reference to the file with the birth id `birth`.
    fn add(&mut self, reference: &ValueFileRef, birth: BirthId) -> Result<()> {
        let file = reference.file;
        let nothing = TableValueUse { file, birth, values: 0, bytes: 0 };
        let one = self.0.entry(file).or_insert(nothing);
        if one.birth != birth {
            let known = one.birth;
            return Err(Error::Invalid(format!("value file {file} has birth id {birth}, expected {known}")));
        }
        one.values += 1;
        one.bytes += u64::from(reference.stored_bytes);
        Ok(())
    }

    /// The uses, in ascending order of the files.
    pub(super) fn to_list(&self) -> Arc<[TableValueUse]> {
        self.0.values().copied().collect()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        // A map is filled by half or more.
        2 * self.0.len() * (size_of::<ValueFileId>() + size_of::<TableValueUse>())
    }
}

impl TableWriter {
    /// Appends a put whose value is in a value file, with the birth id `birth`; `expiry` is that of
    /// a put that expires. The file must be durable before anything refers to the table. `digest`
    /// as in [`Self::add_counted`].
    ///
    /// # Errors
    /// As [`Self::add`]; `Invalid` for a reference that cannot be one, and for another birth id
    /// than before.
    pub fn add_reference(
        &mut self,
        key: &[u8],
        digest: Option<KeyDigest>,
        (seq, expiry): (SeqNo, Option<Expiry>),
        reference: ValueFileRef,
        birth: BirthId,
    ) -> Result<ContentDigest> {
        let stored = reference.encode();
        ValueFileRef::decode(&stored).map_err(Error::Invalid)?;
        let whole = if expiry.is_some() { EntryKind::PutWithExpiry } else { EntryKind::Put };
        let value_bytes = u64::from(reference.value_bytes);
        let order = self.check_entry(key, seq, whole, value_bytes)?;
        // The expiry, if there is one, then the reference.
        let mut payload = [0; Expiry::STORED_BYTES + ValueFileRef::STORED_BYTES];
        let (times, place) = payload.split_at_mut(Expiry::STORED_BYTES);
        place.copy_from_slice(&stored);
        let payload = match expiry {
            Some(expiry) => {
                times.copy_from_slice(&expiry.0.to_le_bytes());
                &payload[..]
            }
            None => &payload[Expiry::STORED_BYTES..],
        };
        self.value_uses.add(&reference, birth)?;
        let kind = whole.separated();
        self.push_entry(key, digest, seq, kind, payload, order)?;
        let content = reference.content(key, seq, kind);
        self.content.merge(content);
        self.raw_value_bytes += value_bytes;
        self.expiring.add(kind, payload, key.len() as u64 + value_bytes);
        self.count(key, seq, kind, order);
        Ok(content)
    }
}
