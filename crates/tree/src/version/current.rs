//! `CURRENT`: the small file that names the current manifest.
//!
//! It consists of a file header ([`shamba_log::framing::header`]) with the magic `SHAMBACU` and the
//! number and birth id of the manifest, 48 bytes in all. It is replaced by a rename, so it always
//! has either the old content or the new. The rename is durable once the directory is synced.

use std::io;
use std::path::Path;

use shamba_env::{Env, FileError, read_file, write_file_synced};
use shamba_table::BirthId;

use super::Result;
use shamba_log::framing::{FileHeader, FileKind, HEADER_BYTES, HeaderFault};

/// The name of the file.
pub const CURRENT: &str = "CURRENT";
/// Temporary name under which the next `CURRENT` is written before the rename.
pub const CURRENT_TEMPORARY: &str = "CURRENT.tmp";

/// Reads `CURRENT`; `None` if the file does not exist.
///
/// # Errors
/// `Corruption` if the content is damaged, `Unsupported` for a newer version, or a failed read.
pub fn read_current(env: &Env, dir: &Path) -> Result<Option<FileHeader>> {
    let path = dir.join(CURRENT);
    let damaged =
        |detail: String| FileError::corruption(&path, 0, FileKind::Current.header_structure(), detail);
    let bytes = match read_file(env.vfs.as_ref(), &path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FileError::io(&path, "read", error)),
    };
    match FileHeader::decode(FileKind::Current, None, &bytes) {
        Ok(_) if bytes.len() as u64 != HEADER_BYTES => {
            Err(damaged(format!("{} bytes, expected {HEADER_BYTES}", bytes.len())))
        }
        Ok(header) => Ok(Some(header)),
        Err(HeaderFault::Damaged(detail)) => Err(damaged(detail)),
        Err(HeaderFault::Unsupported(detail)) => Err(FileError::unsupported(&path, detail)),
    }
}

/// Writes a `CURRENT` that names the manifest with this number and birth id, under the temporary
/// name.
///
/// # Errors
/// I/O errors of the file system; the current manifest is unchanged then.
pub fn draft_current(env: &Env, dir: &Path, number: u64, birth: BirthId) -> Result<()> {
    let temporary = dir.join(CURRENT_TEMPORARY);
    let bytes = FileHeader::new(birth, number).encode(FileKind::Current);
    match env.vfs.unlink(&temporary) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(FileError::io(&temporary, "remove", error)),
    }
    let written = write_file_synced(env.vfs.as_ref(), &temporary, &bytes);
    written.map_err(|error| FileError::io(&temporary, "write", error))
}

/// Renames the file that [`draft_current`] wrote to `CURRENT`, durably.
///
/// # Errors
/// I/O errors of the file system; then either manifest may be the current one.
pub fn install_current(env: &Env, dir: &Path) -> Result<()> {
    let (path, temporary) = (dir.join(CURRENT), dir.join(CURRENT_TEMPORARY));
    env.vfs.rename(&temporary, &path).map_err(|error| FileError::io(&temporary, "rename", error))?;
    env.vfs.sync_dir(dir).map_err(|error| FileError::io(dir, "sync directory", error))
}
