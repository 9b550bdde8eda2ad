//! Writing a manifest: create with a snapshot, append and sync edits.
//!
//! Creation takes effect with the rename of `CURRENT`, and only after the new manifest and its name are
//! durable; until then there is a draft, and the old one is in force. Any failure seals the writer: what the disk holds is
//! unknown then, and the caller turns writes off until a reopen reads it. But for one: an append that found no space and was
//! cut back leaves the manifest as it was before the edit, and another, written anew, may take its place
//! ([`ManifestWriter::is_out_of_space`]). Nothing is appended to it any more, nor synced again.

use std::path::Path;

use shamba_env::Env;

use super::codec::edit_pieces;
use super::state::ManifestState;
use super::{ManifestEdit, manifest_file_name};
use crate::error::{Error, Result};
use crate::version::current::{draft_current, install_current, read_current};
use shamba_key::planted::{Defect, is_planted};
use shamba_log::framing::{FileKind, FrameWriter};

/// The one writer of a manifest.
#[derive(Debug)]
pub struct ManifestWriter {
    number: u64,
    /// How long the file was with nothing but the snapshot in it.
    snapshot_bytes: u64,
    frames: FrameWriter,
}

impl ManifestWriter {
    /// Writes a manifest that holds `state`, syncs it, and puts it in force. A file of the same name that is
    /// not in force, left by a creation that did not end, is replaced.
    ///
    /// # Errors
    /// What the file system says; `Invalid` when `number` is in force already. If the error came late the
    /// new manifest may be in force nonetheless: it says the same as the old one did.
    pub fn create(env: &Env, dir: &Path, number: u64, state: &ManifestState) -> Result<Self> {
        Self::draft(env, dir, number, state)?.put_in_force(env, dir)
    }

    /// Writes and syncs a manifest that holds `state`, and the `CURRENT` that will name it. Both have names of their own
    /// yet: the one in force is, whatever becomes of the draft. A file of the same name that is not in force is replaced.
    ///
    /// # Errors
    /// What the file system says; `Invalid` when `number` is in force already.
    pub fn draft(env: &Env, dir: &Path, number: u64, state: &ManifestState) -> Result<Self> {
        let in_force = read_current(env, dir)?.map(|header| header.number);
        if in_force == Some(number) {
            return Err(Error::invalid(format!("manifest {number} is in force")));
        }
        let path = dir.join(manifest_file_name(number));
        if env.vfs.exists(&path).map_err(|error| Error::io("look for", &path, error))? {
            env.vfs.unlink(&path).map_err(|error| Error::io("remove", &path, error))?;
        }
        let mut frames = FrameWriter::create(env, &path, FileKind::Manifest, number)?;
        frames.append_record(&edit_pieces(&state.snapshot_edit()).parts())?;
        if is_planted(Defect::ManifestUnsynced) {
            frames.flush()?;
        } else {
            frames.sync()?;
        }
        draft_current(env, dir, number, frames.birth())?;
        Ok(Self { number, snapshot_bytes: frames.offset(), frames })
    }

    /// Puts a draft in force.
    ///
    /// # Errors
    /// What the file system says; then it may be in force nonetheless.
    pub fn put_in_force(mut self, env: &Env, dir: &Path) -> Result<Self> {
        // Before the rename: a CURRENT that survives a crash must not name a file that did not.
        env.vfs.sync_dir(dir).map_err(|error| Error::io("sync directory", dir, error))?;
        if is_planted(Defect::ManifestUnlinkedEarly) {
            if let Some(before) = read_current(env, dir)? {
                let _ = env.vfs.unlink(&dir.join(manifest_file_name(before.number)));
            }
        }
        install_current(env, dir)?;
        self.write_promise()?;
        Ok(self)
    }

    /// Appends an edit and makes it durable.
    ///
    /// # Errors
    /// What the file system says, and every later call fails with the same error. The edit may or may not be in force
    /// after a reopen; where the writer [is out of space](Self::is_out_of_space) it is not.
    pub fn append(&mut self, edit: &ManifestEdit) -> Result<()> {
        self.frames.append_record(&edit_pieces(edit).parts())?;
        if is_planted(Defect::EditUnsynced) {
            return Ok(self.frames.flush()?);
        }
        self.frames.sync()?;
        self.write_promise()
    }

    /// Says in the file what was just synced. Not synced itself: if it is lost, so is only the knowledge that
    /// damage to the last edit would be corruption. So a disk that has no room for it takes nothing from the edit.
    fn write_promise(&mut self) -> Result<()> {
        let written = self.frames.append_promise().and_then(|()| self.frames.flush());
        if self.is_out_of_space() { Ok(()) } else { Ok(written?) }
    }

    /// Whether the last append found no space, and the file ends where it did before it, as far as the operating system
    /// said: then what it holds is known, and another manifest that says the same may be put in its place. Not after a
    /// failed sync.
    pub fn is_out_of_space(&self) -> bool {
        self.frames.failure().is_some_and(|cause| cause.is_no_space()) && self.frames.may_be_followed()
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.frames.offset()
    }

    /// Whether edits take more than `most_bytes` and more than the snapshot: then a new manifest pays. A large
    /// tree's snapshot alone may be longer than any fixed limit, and must not be written anew for each edit.
    pub fn is_outgrown(&self, most_bytes: u64) -> bool {
        self.bytes() - self.snapshot_bytes > most_bytes.max(self.snapshot_bytes)
    }

    /// The number in the file's name.
    pub fn number(&self) -> u64 {
        self.number
    }
}
