//! The manifest: the log of edits from which an open rebuilds the state of the whole database.
//!
//! A manifest is a framed file ([`shamba_log::framing`]) named `MANIFEST-000005`. Its first record
//! is a snapshot of the state, each further one an edit ([`codec`]). `CURRENT` names the current
//! manifest ([`super::current`]). [`writer`] appends and syncs, [`load`] reads a manifest back into
//! a [`ManifestState`].
//!
//! An edit is valid once it is synced. Right after the sync, a promise of it is written and not
//! synced. The promise distinguishes corruption of the last edit from an edit that a crash tore. A
//! torn edit at the end never took effect and is dropped with a warning. Damage below a promise, or
//! in the snapshot, is corruption. A manifest is never appended to after a reopen: each open for
//! writing creates a new one.
//!
//! Not here: when to edit, and which files an edit makes obsolete.

pub mod codec;
mod history;
pub mod load;
mod pieces;
pub mod state;
#[cfg(test)]
mod tests;
mod value_fields;
pub mod writer;

pub use load::{ManifestReader, TornEdit};
pub use state::ManifestState;
pub use writer::ManifestWriter;

use super::edit::ManifestEdit;

/// The name of a manifest's file.
pub fn manifest_file_name(number: u64) -> String {
    format!("MANIFEST-{number:06}")
}

/// The number in a manifest's file name; `None` for any other file.
pub fn parse_manifest_file_name(name: &str) -> Option<u64> {
    let number = name.strip_prefix("MANIFEST-")?.parse().ok()?;
    (number > 0 && manifest_file_name(number) == name).then_some(number)
}
