//! A cursor over keys that reads a value only when it is asked for.
//!
//! The moves are those of a scan that reads no values ([`crate::Db::keys`] is one, too). A value is
//! read by a lookup at the sequence number of the cursor, so it is the value that a cursor over
//! values would show. That costs a search more for each value that is read; a step over a value
//! that is not read costs nothing of it, however long it is.

use std::fmt;

use super::Reader;
use crate::error::Result;
use crate::reads::cursor::cursor_moves;
use shamba_tree::iter::scan::Scan;
use shamba_tree::slice::Slice;

/// A position among the keys of a keyspace, as [`crate::Cursor`] is one among its entries. It reads
/// only the values that it is asked for. Made by [`crate::Db::key_cursor`].
///
/// For values that are longer than some KiB of which few are read. Where each value is read, a
/// [`crate::Cursor`] is faster.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = shamba::Db::open(dir.path().join("db"))?;
/// for (name, photo) in [("ana", "..."), ("bob", "..."), ("bora", "...")] {
///     db.put(format!("photo:{name}"), photo)?;
/// }
/// let mut photos = db.key_cursor();
/// photos.seek("photo:b")?;
/// photos.next()?;
/// assert_eq!(photos.key(), Some(&b"photo:bora"[..]));
/// assert_eq!(photos.value()?.as_deref(), Some(&b"..."[..]));
/// # Ok::<(), shamba::Error>(())
/// ```
pub struct KeyCursor {
    scan: Scan,
    /// Reads values at the sequence number of `scan`.
    reader: Reader,
}

impl KeyCursor {
    /// A cursor without a position over the keys that `reader` sees now.
    pub(super) fn new(mut reader: Reader) -> Self {
        reader.freeze();
        let scan = reader.read_at().key_scan();
        Self { scan, reader }
    }

    cursor_moves!();

    /// Whether the cursor is at a key.
    pub fn valid(&self) -> bool {
        self.scan.key().is_some()
    }

    /// The current key.
    pub fn key(&self) -> Option<&[u8]> {
        self.scan.key()
    }

    /// Reads the value of the current key; `None` if the cursor is at none, or in a FIFO keyspace
    /// if its table has been dropped meanwhile.
    ///
    /// # Errors
    /// As [`crate::Db::get`].
    pub fn value(&self) -> Result<Option<Slice>> {
        self.scan.key().map_or(Ok(None), |key| self.reader.get(key))
    }
}

impl fmt::Debug for KeyCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyCursor").field("key", &self.key()).finish_non_exhaustive()
    }
}
