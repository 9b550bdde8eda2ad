//! Large values of a table: read in pieces, or assembled for a caller.
//!
//! An entry of the kind [`shamba_key::EntryKind::ValueRef`] has the place of its value's chunks.
//! They are read from the file each time, bypassing the block cache: one such value is many times
//! the size of a block.
//!
//! Not here: the format of a chunk ([`crate::values`]).

use super::load::Loaded;
use crate::Result;
use crate::counters::ReadCounters;
use crate::format::{FEATURE_VALUES, Section, SectionKind};
use crate::values::{self, VALUE_REFERENCE, ValueRef};

impl Loaded {
    /// Whether the data section holds chunks of large values.
    pub(crate) fn has_values(&self) -> bool {
        self.footer.required & FEATURE_VALUES != 0
    }

    /// Decodes the value of an entry that refers to a large value.
    pub(crate) fn value_ref(&self, reference: &[u8]) -> Result<ValueRef> {
        let nothing = Section { kind: SectionKind::Data, offset: 0, bytes: 0 };
        let data = self.footer.section(SectionKind::Data).filter(|_| self.has_values()).unwrap_or(nothing);
        ValueRef::decode(reference, data).map_err(|detail| {
            let offset = reference.first_chunk().map_or(0, |offset| u64::from_le_bytes(*offset));
            self.file.damaged(offset, VALUE_REFERENCE, detail)
        })
    }

    /// Length of the large value that `reference` refers to.
    pub(super) fn large_value_bytes(&self, reference: &[u8]) -> Result<u64> {
        Ok(u64::from(self.value_ref(reference)?.value_bytes))
    }

    /// Passes the large value that `reference` refers to, to `sink` in pieces.
    pub(super) fn read_large_into(
        &self,
        reference: &[u8],
        io: &mut ReadCounters,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let reference = self.value_ref(reference)?;
        values::read(&self.file, reference, &mut io.value, &mut |piece| sink(piece?))
    }

    /// The large value that `reference` refers to.
    pub(super) fn read_large(&self, reference: &[u8], io: &mut ReadCounters) -> Result<Vec<u8>> {
        // A value of the stated length must fit into the file unless it is compressed; then the
        // buffer grows.
        let bytes = self.large_value_bytes(reference)?.min(self.file.bytes);
        let mut value = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
        self.read_large_into(reference, io, &mut |piece| {
            value.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(value)
    }
}
