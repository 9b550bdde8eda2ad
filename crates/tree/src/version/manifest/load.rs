//! Reads the current manifest. Writes nothing.

use std::io;
use std::path::{Path, PathBuf};

use shamba_env::{Env, FileError};

use super::codec::{EditFault, decode_edit};
use super::state::ManifestState;
use super::{ManifestEdit, manifest_file_name};
use crate::version::Result;
use crate::version::ValueFiles;
use crate::version::current::{CURRENT, read_current};
use shamba_log::framing::header::HEADER_BYTES;
use shamba_log::framing::{
    FileHeader, FileKind, FileWindow, FrameReader, FrameStep, HeaderFault, Record, RecordKind, survey,
};

/// The result of loading a manifest.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The state after the last edit.
    pub state: ManifestState,
    /// The torn edit at the end, which was dropped.
    pub torn: Option<TornEdit>,
}

/// Reads manifests.
#[derive(Debug)]
pub struct ManifestReader;

impl ManifestReader {
    /// Returns the state of the database in `dir`. `None` if there is no database, or only one
    /// whose creation did not reach `CURRENT`.
    ///
    /// # Errors
    /// `Corruption` for damage below a promise, a missing manifest, or a database without
    /// `CURRENT`; `Unsupported` for a newer version; a failed read.
    pub fn load(env: &Env, dir: &Path) -> Result<Option<Loaded>> {
        let Some(current) = read_current(env, dir)? else {
            no_database_without_current(env, dir)?;
            return Ok(None);
        };
        let path = dir.join(manifest_file_name(current.number));
        let exists = env.vfs.exists(&path).map_err(|error| FileError::io(&path, "look for", error))?;
        if !exists {
            let detail = format!("{CURRENT} names it, but it is missing");
            return Err(FileError::corruption(&path, 0, "manifest", detail));
        }
        let mut state = ManifestState::default();
        let torn = read_edits(env, &path, current.number, Some(current), &mut |record, edit| {
            state.apply(&edit).map_err(|detail| {
                FileError::corruption(
                    &path,
                    record.offset,
                    "manifest edit",
                    format!("inconsistent with earlier edits: {detail}"),
                )
            })
        })?;
        // The manifest's own number may have been assigned after the snapshot was made.
        state.next_id = state.next_id.max(current.number.saturating_add(1));
        Ok(Some(Loaded { state, torn }))
    }
}

/// An incomplete edit at the end of a manifest, torn by a crash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TornEdit {
    /// Path of the manifest.
    pub path: PathBuf,
    /// Offset of the incomplete edit.
    pub offset: u64,
    /// Bytes from that offset to the end of the file.
    pub bytes: u64,
    /// Expected and actual content.
    pub detail: String,
}

impl std::fmt::Display for TornEdit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, offset, bytes, detail } = self;
        write!(f, "{}: unfinished edit of {bytes} bytes at offset {offset} ignored: {detail}", path.display())
    }
}

/// Passes every edit of a manifest to `take`, the snapshot first. Returns the torn edit at the end,
/// if there is one.
///
/// # Errors
/// As [`ManifestReader::load`], or an error of `take`.
pub fn read_edits(
    env: &Env,
    path: &Path,
    number: u64,
    expected: Option<FileHeader>,
    take: &mut dyn FnMut(&Record, ManifestEdit) -> Result<()>,
) -> Result<Option<TornEdit>> {
    let mut window = FileWindow::open(env, path)?;
    let start = window.at(0, HEADER_BYTES as usize)?;
    let header = match FileHeader::decode(FileKind::Manifest, Some(number), start) {
        Ok(header) => header,
        Err(HeaderFault::Unsupported(detail)) => return Err(FileError::unsupported(path, detail)),
        // The manifest is current, so its header and snapshot were synced: damage to them is never
        // a torn tail.
        Err(HeaderFault::Damaged(detail)) => {
            return Err(FileError::corruption(path, 0, FileKind::Manifest.header_structure(), detail));
        }
    };
    if expected.is_some_and(|expected| expected.birth != header.birth) {
        let detail = format!("{CURRENT} names another file of that name");
        return Err(FileError::corruption(path, 0, FileKind::Manifest.header_structure(), detail));
    }
    let promise = survey::highest_promise(&mut window, number, Some(header.birth))?;
    let file_bytes = window.file_bytes();
    let mut reader = FrameReader::new(window, number, header.birth);
    let mut edits = 0u64;
    let mut files = ValueFiles::default();
    loop {
        let at = reader.offset();
        let (offset, detail) = match reader.next()? {
            FrameStep::Record(record) => {
                match record.kind {
                    RecordKind::Data => {
                        let edit = decode_edit(&record.payload, &mut files).map_err(|fault| match fault {
                            EditFault::Unsupported(detail) => FileError::unsupported(path, detail),
                            EditFault::Malformed(detail) => {
                                FileError::corruption(path, record.offset, "manifest edit", detail)
                            }
                        })?;
                        take(&record, edit)?;
                        edits += 1;
                    }
                    RecordKind::Promise | RecordKind::End => {}
                    RecordKind::Head => {
                        let detail = "a log's head in a manifest";
                        return Err(FileError::corruption(path, record.offset, "manifest frame", detail));
                    }
                }
                continue;
            }
            FrameStep::End if at >= promise && edits > 0 => return Ok(None),
            FrameStep::End => (at, "it ends here".to_owned()),
            FrameStep::Damage { offset, detail } => (offset, detail),
        };
        if at < promise || edits == 0 {
            let why = match edits {
                0 => "the snapshot was synced before the manifest became current".to_owned(),
                _ => format!("everything below {promise} was synced"),
            };
            let structure = FileKind::Manifest.frame_structure();
            return Err(FileError::corruption(path, offset, structure, format!("{detail}; {why}")));
        }
        let bytes = file_bytes.saturating_sub(at);
        return Ok(Some(TornEdit { path: path.to_path_buf(), offset: at, bytes, detail }));
    }
}

/// Checks that a directory without `CURRENT` holds no log, table or value file, only files that an
/// incomplete creation may leave.
///
/// # Errors
/// `Corruption` if there is one; a failed read.
pub fn no_database_without_current(env: &Env, dir: &Path) -> Result<()> {
    let entries = match env.vfs.list(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(FileError::io(dir, "list", error)),
    };
    let is_data = |name: &str| {
        let stem = [".log", ".sst", ".values"].into_iter().find_map(|suffix| name.strip_suffix(suffix));
        stem.is_some_and(is_number)
    };
    match entries.iter().find(|entry| !entry.is_dir && is_data(&entry.name)) {
        None => Ok(()),
        Some(entry) => {
            let detail = format!("it is missing, but {} belongs to a database", entry.name);
            Err(FileError::corruption(&dir.join(CURRENT), 0, FileKind::Current.header_structure(), detail))
        }
    }
}

fn is_number(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}
