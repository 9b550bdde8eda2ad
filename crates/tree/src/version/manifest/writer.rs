//! Writes a manifest: creates it with a snapshot, appends and syncs edits.
//!
//! A new manifest becomes current with the rename of `CURRENT`, which happens only after the
//! manifest and its name are durable. Until then it is a draft, and the old manifest stays current.
//!
//! Any failure seals the writer: the content of the disk is unknown then, and the caller rejects
//! writes until a reopen reads it. There is one exception. An append that found no space and was
//! truncated leaves the manifest as it was before the edit, and a new manifest may replace it
//! ([`ManifestWriter::is_out_of_space`]). Nothing more is appended to the old one, and it is not
//! synced again.

use std::path::Path;

use shamba_env::{Env, FileError};

use super::codec::edit_pieces;
use super::state::ManifestState;
use super::{ManifestEdit, manifest_file_name};
use crate::version::Result;
use crate::version::current::{draft_current, install_current, read_current};
use shamba_log::framing::{FileKind, FrameWriter};

/// The only writer of a manifest.
#[derive(Debug)]
pub struct ManifestWriter {
    number: u64,
    /// Length of the file with only the snapshot in it.
    snapshot_bytes: u64,
    frames: FrameWriter,
}

impl ManifestWriter {
    /// Writes a manifest that holds `state`, syncs it, and makes it current. A file of the same
    /// name that is not current, left by an incomplete creation, is replaced.
    ///
    /// # Errors
    /// I/O errors of the file system; `Invalid` if manifest `number` is current already. After a
    /// late error the new manifest may be current nonetheless; its state is the same as that of the
    /// old one.
    pub fn create(env: &Env, dir: &Path, number: u64, state: &ManifestState) -> Result<Self> {
        Self::draft(env, dir, number, state)?.put_in_force(env, dir)
    }

    /// Writes and syncs a manifest that holds `state`, and a temporary `CURRENT` that names it.
    /// Neither replaces a file in use, so the current manifest stays valid if the draft is
    /// abandoned. A file of the same name that is not current is replaced.
    ///
    /// # Errors
    /// I/O errors of the file system; `Invalid` if manifest `number` is current already.
    pub fn draft(env: &Env, dir: &Path, number: u64, state: &ManifestState) -> Result<Self> {
        let in_force = read_current(env, dir)?.map(|header| header.number);
        if in_force == Some(number) {
            return Err(FileError::Invalid(format!("manifest {number} is current")));
        }
        let path = dir.join(manifest_file_name(number));
        if env.vfs.exists(&path).map_err(|error| FileError::io(&path, "look for", error))? {
            env.vfs.unlink(&path).map_err(|error| FileError::io(&path, "remove", error))?;
        }
        let mut frames = FrameWriter::create(env, &path, FileKind::Manifest, number)?;
        frames.append_record(&edit_pieces(&state.snapshot_edit()).parts())?;
        frames.sync()?;
        assert!(frames.offset() > 0, "a manifest without its first record becomes current");
        draft_current(env, dir, number, frames.birth())?;
        Ok(Self { number, snapshot_bytes: frames.offset(), frames })
    }

    /// Makes a draft the current manifest.
    ///
    /// # Errors
    /// I/O errors of the file system; the draft may be current nonetheless.
    pub fn put_in_force(mut self, env: &Env, dir: &Path) -> Result<Self> {
        // Before the rename: a `CURRENT` that survives a crash must not name a file that did not.
        env.vfs.sync_dir(dir).map_err(|error| FileError::io(dir, "sync directory", error))?;
        install_current(env, dir)?;
        self.write_promise()?;
        Ok(self)
    }

    /// Appends an edit and makes it durable.
    ///
    /// # Errors
    /// I/O errors of the file system; then every later call fails with the same error. After a
    /// reopen the edit may or may not be part of the state; if the writer [is out of
    /// space](Self::is_out_of_space), it is not.
    pub fn append(&mut self, edit: &ManifestEdit) -> Result<()> {
        let before = self.frames.offset();
        self.frames.append_record(&edit_pieces(edit).parts())?;
        assert!(self.frames.offset() > before, "an edit took no byte of manifest {}", self.number);
        self.frames.sync()?;
        self.write_promise()
    }

    /// Writes a promise of the last sync. The promise is not synced: if it is lost, damage to the
    /// last edit is only no longer recognized as corruption. So if the disk has no space for it,
    /// the edit still succeeds.
    fn write_promise(&mut self) -> Result<()> {
        let written = self.frames.append_promise().and_then(|()| self.frames.flush());
        if self.is_out_of_space() { Ok(()) } else { written }
    }

    /// Whether the last append found no space, and the operating system reported that the file was
    /// truncated to its length before it. Then the content is known, and a new manifest with the
    /// same state may replace this one. Always false after a failed sync.
    pub fn is_out_of_space(&self) -> bool {
        self.frames.failure().is_some_and(|cause| cause.is_no_space()) && self.frames.may_be_followed()
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.frames.offset()
    }

    /// Whether the edits take more than `bytes_max` and more than the snapshot, so that a new
    /// manifest pays off. The second bound prevents that a large tree, whose snapshot alone exceeds
    /// any fixed limit, is rewritten for each edit.
    pub fn is_outgrown(&self, bytes_max: u64) -> bool {
        debug_assert!(self.bytes() >= self.snapshot_bytes, "a manifest shorter than its first record");
        self.bytes() - self.snapshot_bytes > bytes_max.max(self.snapshot_bytes)
    }

    /// The number in the file's name.
    pub fn number(&self) -> u64 {
        self.number
    }
}
