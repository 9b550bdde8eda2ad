//! Values of visible entries that are stored elsewhere: in chunks of a table or a log, or in a
//! value file.
//!
//! The former are read at once, and end the batch. Of the latter the reference is noted, so that
//! the values of a batch are read together ([`crate::iter::later`]). A backward walk notes it when
//! it passes the version, so it need not come back.

use std::sync::Arc;

use bytes::Bytes;
use shamba_key::{EntryKind, Expiry};
use shamba_table::{EntryIter, ValueFile, ValueFileRef};

use super::VisibleIter;
use crate::error::{Error, Result};
use crate::iter::batch::Batch;
use crate::slice::Slice;

/// The place of a value in a value file.
pub(super) type Place = Result<(Arc<ValueFile>, ValueFileRef)>;

impl VisibleIter {
    /// Replaces the value of the last entry of `out` by that of the current entry, which is large
    /// and of this kind. Removes the last entry on failure.
    pub(super) fn take_large(&self, kind: EntryKind, out: &mut Batch) -> Result<()> {
        if kind.in_value_file() {
            return take_later(Some(self.place()), kind, out);
        }
        self.put_together(out)
    }

    /// The place of the current entry's value, which is in a value file.
    pub(super) fn place(&self) -> Place {
        let separated = self.merge.separated()?;
        let (file, reference) = separated.ok_or_else(no_value_file)?;
        Ok((Arc::clone(file), reference))
    }

    /// Reads the large value of the current entry into the last entry of `out`, which then is full.
    /// Removes that entry on failure.
    #[cold]
    pub(super) fn put_together(&self, out: &mut Batch) -> Result<()> {
        let mut value = Vec::new();
        let read = self.merge.read_value(&mut |piece| {
            if value.is_empty() {
                // Reserved only now: the first piece has been read, so the length was checked and
                // is not a mere claim.
                value.reserve_exact(usize::try_from(self.merge.value_bytes_len()?).unwrap_or(0));
            }
            value.extend_from_slice(piece);
            Ok(())
        });
        match read {
            Ok(()) => {
                // The value of one that expires begins after its expiry.
                let from = if self.merge.kind().has_expiry() { Expiry::STORED_BYTES } else { 0 };
                let value = Bytes::from(value);
                out.set_long(Slice::from_bytes(value.slice(from.min(value.len())..)));
            }
            Err(_) => out.pop(),
        }
        Ok(read?)
    }
}

/// Lets the last entry of `out`, of this kind, have the value at `place` once the batch is
/// complete. Removes the entry on failure.
pub(super) fn take_later(place: Option<Place>, kind: EntryKind, out: &mut Batch) -> Result<()> {
    match place.unwrap_or_else(|| Err(no_value_file())) {
        Ok((file, reference)) => {
            out.set_later(file, reference, kind);
            Ok(())
        }
        Err(error) => {
            out.pop();
            Err(error)
        }
    }
}

/// The error for a source of entries in value files that has no value files.
fn no_value_file() -> Error {
    Error::invalid("a value in a value file, of a source that has none")
}
