//! Options of reads, and keys with a digest that several reads share.

use shamba_key::KeyDigest;
use shamba_table::{AHEAD_BYTES, Walk};

/// Maximum of [`ReadOptions::readahead_bytes`].
const AHEAD_BYTES_MAX: u64 = 4 << 20;

/// By default a scan reads ahead at most this fraction of the memory budget in each run: 1 / 128.
const AHEAD_PART: u64 = 128;

/// Options of reads. Used by [`crate::Db::with`].
///
/// ```
/// use shamba::ReadOptions;
///
/// let options = ReadOptions::new().fill_cache(false).lower_bound("a").upper_bound("b");
/// assert_eq!(options.upper_bound.as_deref(), Some(&b"b"[..]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadOptions {
    /// Whether blocks that a scan reads go into the block cache. Default true. False suits a single
    /// long scan: it then does not evict the blocks that lookups use.
    pub fill_cache: bool,
    /// Inclusive lower bound of the keys that scans return.
    pub lower_bound: Option<Vec<u8>>,
    /// Exclusive upper bound of the keys that scans return.
    pub upper_bound: Option<Vec<u8>>,
    /// Maximum bytes that a scan reads ahead from a table in one read. Read-ahead begins after a
    /// few blocks in sequence were not in the cache. Each run of the scan has a buffer of this
    /// size. Default `None`: 256 KiB, or less with a small memory budget.
    ///
    /// It is also the maximum length of the values in value files that a scan reads together: 16
    /// KiB at first, and twice as many whenever it goes on.
    ///
    /// A larger value helps on a device whose reads take long whatever their size. 0 reads block by
    /// block and value by value, which suits many scans that may stop at any entry. More than 4 MiB
    /// counts as 4 MiB.
    pub readahead_bytes: Option<usize>,
}

impl ReadOptions {
    /// The options of handles without options of their own.
    pub(crate) const DEFAULT: Self =
        Self { fill_cache: true, lower_bound: None, upper_bound: None, readahead_bytes: None };

    /// The default options.
    pub fn new() -> Self {
        Self::DEFAULT
    }

    /// Sets whether blocks that a scan reads go into the block cache.
    #[must_use]
    pub fn fill_cache(mut self, fill_cache: bool) -> Self {
        self.fill_cache = fill_cache;
        self
    }

    /// Sets the inclusive lower bound of the keys that scans return.
    #[must_use]
    pub fn lower_bound(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.lower_bound = Some(key.into());
        self
    }

    /// Sets the exclusive upper bound of the keys that scans return.
    #[must_use]
    pub fn upper_bound(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.upper_bound = Some(key.into());
        self
    }

    /// Sets the maximum bytes that a scan reads ahead from a table in one read.
    #[must_use]
    pub fn readahead_bytes(mut self, bytes: usize) -> Self {
        self.readahead_bytes = Some(bytes);
        self
    }

    /// The way in which scans read tables, within a memory budget.
    pub(super) fn walk(&self, budget_bytes: u64) -> Walk {
        let unasked = AHEAD_BYTES.min(budget_bytes / AHEAD_PART);
        let ahead_bytes = self.readahead_bytes.map_or(unasked, |bytes| (bytes as u64).min(AHEAD_BYTES_MAX));
        Walk::Parts { fill_cache: self.fill_cache, ahead_bytes }
    }
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A key with its digest, to look up in any keyspace without hashing again. Made by
/// [`crate::Db::hash_key`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HashedKey {
    pub(crate) key: Vec<u8>,
    pub(crate) digest: KeyDigest,
    pub(crate) made_by: shamba_key::DigestFn,
}

impl HashedKey {
    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }
}
