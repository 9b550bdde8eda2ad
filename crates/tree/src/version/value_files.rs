//! Value files of a tree: the manifest's metadata of each.
//!
//! A value file is live while a table of a version names it, so no list of live files exists. Every
//! table that names a file owns its [`ValueFileMeta`]. Each file has one, so its reference count
//! tells whether a reader or a version still needs the file.
//!
//! Not here: the files themselves (`shamba_table`), what tables refer to ([`super::values`]).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use shamba_table::{BirthId, VALUE_FILE_FIXED_BYTES, ValueFile, ValueFileId};

/// The manifest's metadata of one value file.
#[derive(Debug)]
pub struct ValueFileMeta {
    /// Number of the file.
    pub id: ValueFileId,
    /// Random id that salts the file's checksums; it reveals a swapped file.
    pub birth: BirthId,
    /// Length of the file.
    pub file_bytes: u64,
    /// Number of values in the file.
    pub values: u64,
    /// The open file. Trees without files (tests, simulation) have none.
    pub file: ValueFileSlot,
}

/// An open value file; set once.
#[derive(Default)]
pub struct ValueFileSlot(OnceLock<Arc<ValueFile>>);

impl ValueFileSlot {
    /// The file, if it is open.
    #[inline]
    pub fn get(&self) -> Option<&Arc<ValueFile>> {
        self.0.get()
    }

    /// Keeps the file open from now on. A second call has no effect.
    pub fn set(&self, file: Arc<ValueFile>) {
        _ = self.0.set(file);
    }
}

impl fmt::Debug for ValueFileSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueFileSlot").field("is_open", &self.0.get().is_some()).finish_non_exhaustive()
    }
}

impl ValueFileMeta {
    /// Bytes of the stored values: those of the file without its header and footer.
    pub fn stored_bytes(&self) -> u64 {
        self.file_bytes.saturating_sub(VALUE_FILE_FIXED_BYTES)
    }
}

/// Value files by number, so that each has one [`ValueFileMeta`].
#[derive(Clone, Default, Debug)]
pub struct ValueFiles(BTreeMap<ValueFileId, Arc<ValueFileMeta>>);

impl ValueFiles {
    /// The file of this number.
    pub fn get(&self, id: ValueFileId) -> Option<&Arc<ValueFileMeta>> {
        self.0.get(&id)
    }

    /// Adds a file; returns it, or the one of this number that is there already.
    ///
    /// # Errors
    /// The number belongs to a file with another birth id, length or number of values.
    pub fn add(&mut self, meta: ValueFileMeta) -> Result<&Arc<ValueFileMeta>, String> {
        use std::collections::btree_map::Entry;
        match self.0.entry(meta.id) {
            Entry::Vacant(place) => Ok(place.insert(Arc::new(meta))),
            Entry::Occupied(place) => {
                let known = place.into_mut();
                let is_same = |a: &ValueFileMeta, b: &ValueFileMeta| {
                    (a.birth, a.file_bytes, a.values) == (b.birth, b.file_bytes, b.values)
                };
                if !is_same(known, &meta) {
                    return Err(format!("value file {} is there already, as another file", meta.id));
                }
                Ok(known)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_belongs_to_one_file() {
        let mut files = ValueFiles::default();
        let meta = |values| {
            let (id, birth, file) = (ValueFileId(7), BirthId(7), Default::default());
            ValueFileMeta { id, birth, file_bytes: 1128, values, file }
        };
        let first = Arc::clone(files.add(meta(10)).expect("a new one"));
        assert!(Arc::ptr_eq(files.add(meta(10)).expect("the same"), &first));
        assert_eq!(files.add(meta(11)).unwrap_err(), "value file 000007 is there already, as another file");
        assert!(files.get(ValueFileId(8)).is_none());
    }

    #[test]
    fn a_slot_shows_whether_its_file_is_open() {
        assert_eq!(format!("{:?}", ValueFileSlot::default()), "ValueFileSlot { is_open: false, .. }");
    }
}
