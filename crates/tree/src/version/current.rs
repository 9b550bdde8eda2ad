//! `CURRENT`: the one small file that names the manifest in force.
//!
//! It is a file header ([`shamba_log::framing::header`]) with the magic `SHAMBACU` and the number and birth id of the
//! manifest, 48 bytes in all. It is replaced by a rename, so it is either the old one or the new one; the
//! rename is durable once the directory is synced.

use std::io;
use std::path::Path;

use shamba_env::{Env, read_file, write_file_synced};
use shamba_table::BirthId;

use crate::error::{Error, Result};
use shamba_key::planted::{Defect, is_planted};
use shamba_log::framing::{FileHeader, FileKind, HEADER_BYTES, HeaderFault};

/// The name of the file.
pub const CURRENT: &str = "CURRENT";
/// Where the next one is written before it is renamed.
pub const CURRENT_TEMPORARY: &str = "CURRENT.tmp";

/// What `CURRENT` says; `None` if there is none.
///
/// # Errors
/// `Corruption` if it is not what was written, `Unsupported` for a newer version, what reading says.
pub fn read_current(env: &Env, dir: &Path) -> Result<Option<FileHeader>> {
    let path = dir.join(CURRENT);
    let damaged = |detail: String| Error::corruption(&path, 0, FileKind::Current.header_structure(), detail);
    let bytes = match read_file(env.vfs.as_ref(), &path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("read", &path, error)),
    };
    match FileHeader::decode(FileKind::Current, None, &bytes) {
        Ok(_) if bytes.len() as u64 != HEADER_BYTES => {
            Err(damaged(format!("{} bytes where {HEADER_BYTES} were due", bytes.len())))
        }
        Ok(header) => Ok(Some(header)),
        Err(HeaderFault::Damaged(detail)) => Err(damaged(detail)),
        Err(HeaderFault::Unsupported(detail)) => Err(Error::unsupported(&path, detail)),
    }
}

/// Writes the `CURRENT` that will name the manifest with this number and birth id, under its other name.
///
/// # Errors
/// What the file system says; nothing that is in force has changed then.
pub fn draft_current(env: &Env, dir: &Path, number: u64, birth: BirthId) -> Result<()> {
    let temporary = dir.join(CURRENT_TEMPORARY);
    let bytes = FileHeader::new(birth, number).encode(FileKind::Current);
    match env.vfs.unlink(&temporary) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::io("remove", &temporary, error)),
    }
    let written = write_file_synced(env.vfs.as_ref(), &temporary, &bytes);
    written.map_err(|error| Error::io("write", &temporary, error))
}

/// Puts in force, durably, what [`draft_current`] wrote.
///
/// # Errors
/// What the file system says; then either manifest may be in force.
pub fn install_current(env: &Env, dir: &Path) -> Result<()> {
    let (path, temporary) = (dir.join(CURRENT), dir.join(CURRENT_TEMPORARY));
    env.vfs.rename(&temporary, &path).map_err(|error| Error::io("rename", &temporary, error))?;
    if is_planted(Defect::CurrentUnsynced) {
        return Ok(());
    }
    env.vfs.sync_dir(dir).map_err(|error| Error::io("sync directory", dir, error))
}
