//! Versions: the tree as an immutable value, the edits between values, and the manifest that
//! records them.

mod check;
pub mod current;
pub mod edit;
mod hidden;
pub mod history;
mod live;
pub mod manifest;
mod notation;
mod range;
mod range_union;
mod run;
mod run_tombstones;
mod slot;
mod tombstone_time;
mod value_files;
mod values;
#[allow(clippy::module_inception)]
mod version;

pub use check::deep_check;
pub use edit::{
    Change, KeyRange, ManifestEdit, OlderVersions, Pairs, TableExpiry, TableMeta, TableUse, VersionEdit,
};
pub use hidden::HiddenValues;
pub use history::{History, HistoryEntry};
pub use live::{level_bytes, live_bytes, live_entries};
pub use range_union::RangeUnion;
pub use run::Run;
pub use slot::OpenTables;
pub use tombstone_time::TombstoneTime;
pub use value_files::{ValueFileMeta, ValueFileSlot, ValueFiles};
pub use values::{ConsumedValues, TableValues, ValueTotal, ValueTotals, ValueUse, ValueUses};
pub use version::Version;

/// The result of reading and writing manifests: only files can fail.
pub type Result<T> = std::result::Result<T, shamba_env::FileError>;
