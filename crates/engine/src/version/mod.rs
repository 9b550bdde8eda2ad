//! Versions: the tree as an immutable value, the edits between values, and the manifest that records them.

mod check;
pub(crate) mod current;
pub(crate) mod edit;
pub(crate) mod manifest;
mod notation;
mod range;
mod run;
mod slot;
#[allow(clippy::module_inception)]
mod version;

pub(crate) use check::deep_check;
pub(crate) use edit::{Change, KeyRange, ManifestEdit, Pairs, TableMeta, TableUse, VersionEdit};
pub(crate) use run::Run;
pub(crate) use slot::OpenTables;
pub(crate) use version::Version;
