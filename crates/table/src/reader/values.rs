//! Values that are stored outside the data blocks: in chunks of the table, or in value files.
//!
//! An entry of the kind [`EntryKind::ValueRef`] has the place of its value's chunks in the table.
//! They are read from the file each time, bypassing the block cache: one such value is many times
//! the size of a block. An entry of the kind [`EntryKind::ValueFileRef`] has a reference to a value
//! file, one of those that the table was opened with. A table that was opened without them decodes
//! the references only.
//!
//! Not here: the format of a chunk ([`crate::values`]) and of a reference ([`crate::value_file`]).

use std::sync::Arc;

use shamba_key::EntryKind;

use super::load::{Loaded, PROPERTIES};
use crate::counters::ReadCounters;
use crate::format::{FEATURE_VALUE_FILES, FEATURE_VALUES, Section, SectionKind};
use crate::value_file::{ValueFile, ValueFileRef};
use crate::value_uses::TableValueUse;
use crate::values::{self, VALUE_REFERENCE, ValueRef};
use crate::{Error, Result};

impl Loaded {
    /// Whether the data section holds chunks of large values.
    pub(crate) fn has_values(&self) -> bool {
        self.footer.required & FEATURE_VALUES != 0
    }

    /// Whether entries refer to value files.
    pub(crate) fn has_value_files(&self) -> bool {
        self.footer.required & FEATURE_VALUE_FILES != 0
    }

    /// Decodes the reference of an entry to chunks of this table.
    pub(crate) fn value_ref(&self, reference: &[u8]) -> Result<ValueRef> {
        let nothing = Section { kind: SectionKind::Data, offset: 0, bytes: 0 };
        let data = self.footer.section(SectionKind::Data).filter(|_| self.has_values()).unwrap_or(nothing);
        ValueRef::decode(reference, data).map_err(|detail| {
            let offset = reference.first_chunk().map_or(0, |offset| u64::from_le_bytes(*offset));
            self.file.damaged(offset, VALUE_REFERENCE, detail)
        })
    }

    /// Decodes the reference of an entry to a value file, which the properties must name.
    pub(crate) fn file_ref(&self, reference: &[u8]) -> Result<ValueFileRef> {
        self.placed_ref(reference).map(|(found, _)| found)
    }

    /// [`Self::file_ref`], and the place of the file among those that the properties name.
    fn placed_ref(&self, reference: &[u8]) -> Result<(ValueFileRef, usize)> {
        let checked = ValueFileRef::decode(reference).and_then(|found| {
            if !self.has_value_files() {
                return Err("a reference to a value file in a table whose footer states none".to_owned());
            }
            match self.properties.value_files.binary_search_by_key(&found.file, |one| one.file) {
                Ok(place) => Ok((found, place)),
                Err(_) => {
                    Err(format!("a reference to the value file {}, which no property names", found.file))
                }
            }
        });
        // The entry is somewhere in the data.
        let data_at = || self.footer.section(SectionKind::Data).map_or(0, |data| data.offset);
        checked.map_err(|detail| self.file.damaged(data_at(), VALUE_REFERENCE, detail))
    }

    /// Keeps the value files that the properties name, out of `files`. If `files` is empty, so is
    /// the result.
    ///
    /// # Errors
    /// `Corruption` if one is missing, or has another birth id.
    pub(super) fn take_value_files(&mut self, mut files: Vec<Arc<ValueFile>>) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        files.sort_unstable_by_key(|file| file.id());
        let offset = self.footer.section(SectionKind::Properties).map_or(0, |section| section.offset);
        let mut kept = Vec::with_capacity(self.properties.value_files.len());
        for TableValueUse { file: id, birth, .. } in self.properties.value_files.iter() {
            let place = files.binary_search_by_key(id, |file| file.id()).ok();
            let file = place.and_then(|place| files.get(place));
            match file.map(|file| (file, file.birth())) {
                Some((file, found)) if found == *birth => kept.push(Arc::clone(file)),
                Some((_, found)) => {
                    let detail = format!("value file {id} has birth id {found}, expected {birth}");
                    return Err(self.file.damaged(offset, PROPERTIES, detail));
                }
                None => {
                    let detail = format!("value file {id} is not known");
                    return Err(self.file.damaged(offset, PROPERTIES, detail));
                }
            }
        }
        self.value_files = kept;
        Ok(())
    }

    /// The reference of an entry of this kind and payload to a value file, and the file; `None` if
    /// its value is not in one.
    pub(super) fn separated(
        &self,
        kind: EntryKind,
        payload: &[u8],
    ) -> Result<Option<(&Arc<ValueFile>, ValueFileRef)>> {
        if !kind.in_value_file() {
            return Ok(None);
        }
        let (reference, place) = self.placed_ref(kind.location(payload))?;
        match self.value_files.get(place) {
            Some(file) => Ok(Some((file, reference))),
            None => {
                let (path, file) = (self.file.path.display(), reference.file);
                Err(Error::Invalid(format!("{path} was opened without value file {file}")))
            }
        }
    }

    /// Length of the value of a large entry.
    pub(super) fn large_value_bytes(&self, kind: EntryKind, payload: &[u8]) -> Result<u64> {
        let reference = kind.location(payload);
        Ok(match kind.in_value_file() {
            true => self.file_ref(reference)?.value_bytes.into(),
            false => self.value_ref(reference)?.value_bytes.into(),
        })
    }

    /// Passes the value of a large entry to `sink` in pieces.
    pub(super) fn read_large_into(
        &self,
        kind: EntryKind,
        payload: &[u8],
        io: &mut ReadCounters,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        if let Some((file, reference)) = self.separated(kind, payload)? {
            return file.read_into(reference, &mut io.value, sink);
        }
        let reference = self.value_ref(kind.location(payload))?;
        values::read(&self.file, reference, &mut io.value, &mut |piece| sink(piece?))
    }

    /// The value of a large entry.
    pub(super) fn read_large(
        &self,
        kind: EntryKind,
        payload: &[u8],
        io: &mut ReadCounters,
    ) -> Result<Vec<u8>> {
        if let Some((file, reference)) = self.separated(kind, payload)? {
            return file.read(reference, &mut io.value);
        }
        // A value of the stated length must fit into the file unless it is compressed; then the
        // buffer grows.
        let bytes = self.large_value_bytes(kind, payload)?.min(self.file.bytes);
        let mut value = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
        self.read_large_into(kind, payload, io, &mut |piece| {
            value.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(value)
    }
}
