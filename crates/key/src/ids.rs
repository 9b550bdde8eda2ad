//! Numbers of the engine's objects, each its own type so that two cannot be swapped.
//!
//! All files of a database draw from one counter, so a file number is never used twice.

use std::fmt;

/// Identifier of a keyspace (column family). 0 is the default one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct KeyspaceId(pub u32);

impl KeyspaceId {
    /// The keyspace that every database has.
    pub const DEFAULT: Self = Self(0);
}

/// Number of a write-ahead log file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LogNo(pub u64);

/// Identifier of a run, which is a sorted list of tables. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RunId(pub u64);

/// Age of a run among the runs of its keyspace: larger is newer. Stored explicitly, never derived
/// from sequence numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Age(pub u64);

macro_rules! plain_display {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

plain_display!(KeyspaceId LogNo RunId Age);
