//! Large values of a table: read in pieces, or put together for a caller.
//!
//! An entry of the kind [`shamba_key::EntryKind::ValueRef`] says where the chunks of its value lie; they are
//! read from the file each time, past the cache of blocks: a value is many times what the cache keeps of
//! anything else.
//!
//! Not here: what a chunk looks like ([`crate::values`]).

use super::{Loaded, ReadCounters, TableReader};
use crate::Result;
use crate::format::{FEATURE_VALUES, Section, SectionKind};
use crate::values::{self, VALUE_REFERENCE, ValueRef};

impl TableReader {
    /// How long the large value is at which `reference`, the value of an entry of this table, points.
    ///
    /// # Errors
    /// `Corruption` when it points at none.
    pub fn large_value_bytes(&self, reference: &[u8]) -> Result<u64> {
        Ok(u64::from(self.loaded.value_ref(reference)?.value_bytes))
    }

    /// Gives the large value at which `reference`, the value of an entry of this table, points, piece by
    /// piece.
    ///
    /// # Errors
    /// What reading says, `Io` or `Corruption`, or what `sink` says, which then got a part of the value only.
    pub fn read_large_into(
        &self,
        reference: &[u8],
        io: &mut ReadCounters,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let reference = self.loaded.value_ref(reference)?;
        values::read(&self.loaded.file, reference, &mut io.value, &mut |piece| sink(piece?))
    }

    /// The large value at which `reference`, the value of an entry of this table, points.
    ///
    /// # Errors
    /// What reading says: `Io` or `Corruption`.
    pub fn read_large(&self, reference: &[u8], io: &mut ReadCounters) -> Result<Vec<u8>> {
        // What the reference says must fit into the file, except compressed: then it grows as it comes.
        let bytes = self.large_value_bytes(reference)?.min(self.loaded.file.bytes);
        let mut value = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
        self.read_large_into(reference, io, &mut |piece| {
            value.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(value)
    }
}

impl Loaded {
    /// Whether the data section holds chunks of large values.
    pub(crate) fn has_values(&self) -> bool {
        self.footer.required & FEATURE_VALUES != 0
    }

    /// What the value of an entry says of a large value.
    pub(crate) fn value_ref(&self, reference: &[u8]) -> Result<ValueRef> {
        let nothing = Section { kind: SectionKind::Data, offset: 0, bytes: 0 };
        let data = self.footer.section(SectionKind::Data).filter(|_| self.has_values()).unwrap_or(nothing);
        ValueRef::decode(reference, data).map_err(|detail| {
            let offset = reference.first_chunk().map_or(0, |offset| u64::from_le_bytes(*offset));
            self.file.damaged(offset, VALUE_REFERENCE, detail)
        })
    }
}
