//! The manifest: the log of edits from which the state of the whole database is rebuilt at open.
//!
//! A framed file ([`crate::log`]) named `MANIFEST-000005`: the first record is a snapshot of the state, each
//! further one an edit ([`codec`]). `CURRENT` names the one in force ([`super::current`]). [`writer`] appends
//! and syncs, [`load`] reads back into a [`ManifestState`].
//!
//! An edit counts once it is synced. Right after, a frame that promises it is written and not synced: with
//! it, rot of the last edit is told from an edit that was torn by a crash. A torn edit at the end was never
//! acted upon and is dropped with a warning; damage below a promise, or in the snapshot, is corruption.
//! A manifest is never appended to after a reopen: each open for writing begins a new one.
//!
//! Not here: when to edit, and which files an edit makes dead.

pub mod codec;
pub mod load;
mod pieces;
pub mod state;
#[cfg(test)]
mod tests;
pub mod writer;

pub use load::ManifestReader;
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
