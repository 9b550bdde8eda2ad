//! Descriptions of logs, manifests and tables: the output of `shamba wal FILE`, `manifest DB` and
//! `table FILE`.
//!
//! Each call describes one file. Whether an irregular end is a torn tail or corruption is decided
//! as in an open: by the promises in the file itself. A manifest must also contain a complete
//! snapshot, because the snapshot is synced before the manifest becomes current. For a log in the
//! directory of its database, the promises of the other files count, too, unless a writer is
//! active. Nothing is written.
//!
//! Not here: the description of tables (crate `shamba-table`), the check of a whole database.

use std::fmt;
use std::path::{Path, PathBuf};

use shamba_env::Env;

use crate::error::{Error, ErrorKind, Result};
use crate::tuning::history::{History, Redesigned};
use shamba_log::framing::codec::Decoded;
use shamba_log::framing::{
    FileHeader, FileKind, FileWindow, FrameReader, FrameStep, HEADER_BYTES, HeaderFault, Record, RecordKind,
    survey,
};

mod manifest;
#[cfg(test)]
mod tests;
mod wal;

pub use manifest::manifest_file;
pub use shamba_filter::ModuleShape;
pub use shamba_table::{TableDescription, ValueFileDescription};
pub use wal::wal_file;

/// Describes the table at `path`; reads every data block.
///
/// # Errors
/// `Corruption` that names the damaged structure, `Unsupported` for a newer version, `Io` if a read
/// fails.
pub fn table_file(env: &Env, path: &Path) -> Result<TableDescription> {
    Ok(shamba_table::describe(env, path, None)?)
}

/// Describes the value file at `path`; reads every value.
///
/// # Errors
/// As [`table_file`].
pub fn value_file(env: &Env, path: &Path) -> Result<ValueFileDescription> {
    Ok(shamba_table::describe_value_file(env, path, None)?)
}

/// Parses the setting `redesigns` of a manifest: the redesigns, oldest first. Unknown entries, for
/// example of a later version, are skipped.
pub fn redesigns(setting: &str) -> Vec<Redesigned> {
    History::from_text(setting).list().to_vec()
}

/// One record of a framed file.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RecordDescription {
    /// Offset of the record.
    pub offset: u64,
    /// Its length, frame headers included.
    pub bytes: u64,
    /// Number of frames.
    pub frames: u32,
    /// "head", "batches", "edit", "promise" or "end".
    pub kind: &'static str,
    /// Everything in the file below this offset was synced before the record was written; 0 if the
    /// record is no promise.
    pub promise: u64,
    /// The content as (name, value), in order; a name may occur several times.
    pub fields: Vec<(&'static str, String)>,
}

/// How a framed file ends.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Ending {
    /// With an end marker: the file was closed cleanly.
    Clean,
    /// At a record boundary, without an end marker.
    Open,
    /// With damage that no promise covers: the tail of an unclean stop.
    Torn {
        /// End of the readable part.
        offset: u64,
        /// Number of bytes after it.
        bytes: u64,
        /// Description of the damage.
        detail: String,
    },
    /// With damage, or missing data, that a promise covers.
    Corrupt {
        /// Offset of the damage.
        offset: u64,
        /// Description of the damage.
        detail: String,
    },
}

/// Content of a framed file.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LogDescription {
    /// The file.
    pub file: PathBuf,
    /// "log" or "manifest".
    pub kind: &'static str,
    /// The number in its header.
    pub number: u64,
    /// The random id that salts its checksums.
    pub birth: u64,
    /// Optional feature bits.
    pub optional_features: u64,
    /// Length of the file.
    pub bytes: u64,
    /// The highest promise in the file, in readable records or after damage.
    pub promise: u64,
    /// The readable records from the beginning.
    pub records: Vec<RecordDescription>,
    /// The end of the file.
    pub ending: Ending,
}

impl LogDescription {
    /// Whether promised data is damaged.
    pub fn is_corrupt(&self) -> bool {
        matches!(self.ending, Ending::Corrupt { .. })
    }
}

impl fmt::Display for LogDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, kind, number, birth, bytes, promise, .. } = self;
        writeln!(f, "{}: {kind} {number}, birth {birth:016x}, {bytes} bytes", file.display())?;
        for record in &self.records {
            let RecordDescription { offset, bytes, frames, kind, promise, fields } = record;
            write!(f, "{offset:>10}  {kind:<8}{bytes} bytes")?;
            if *frames > 1 {
                write!(f, " in {frames} frames")?;
            }
            if *promise > 0 {
                write!(f, ", all below {promise} is synced")?;
            }
            writeln!(f)?;
            for (name, value) in fields {
                writeln!(f, "            {name} {value}")?;
            }
        }
        match &self.ending {
            Ending::Clean => writeln!(f, "closed cleanly"),
            Ending::Open => {
                write!(f, "ends at a record boundary; synced up to {promise}")?;
                let end = self.records.last().map_or(HEADER_BYTES, |record| record.offset + record.bytes);
                match bytes.saturating_sub(end) {
                    0 => writeln!(f),
                    zeros => writeln!(f, "; followed by {zeros} zero bytes, allocated in advance"),
                }
            }
            Ending::Torn { offset, bytes, detail } => {
                writeln!(f, "torn tail: {bytes} bytes from offset {offset} on: {detail}")
            }
            Ending::Corrupt { offset, detail } => {
                writeln!(f, "CORRUPT at offset {offset}: {detail}; synced up to {promise}")
            }
        }
    }
}

/// Describes a framed file; `describe` converts the payload of each record to its kind and fields.
fn describe_file(
    env: &Env,
    path: &Path,
    kind: FileKind,
    describe: &mut dyn FnMut(&mut FrameReader, &Record, u64) -> Result<Described>,
) -> Result<LogDescription> {
    let mut window = FileWindow::open(env, path)?;
    let start = window.at(0, HEADER_BYTES as usize)?;
    let header = FileHeader::decode(kind, None, start).map_err(|fault| match fault {
        HeaderFault::Damaged(detail) => Error::corruption(path, 0, kind.header_structure(), detail),
        HeaderFault::Unsupported(detail) => {
            Error::new(ErrorKind::Unsupported, format!("{}: {detail}", path.display()))
        }
    })?;
    let promise = survey::highest_promise(&mut window, header.number, Some(header.birth))?;
    let bytes = window.file_bytes();
    let mut reader = FrameReader::new(window, header.number, header.birth);
    if kind == FileKind::Wal {
        reader.hold_one_frame();
    }
    let mut records: Vec<RecordDescription> = Vec::new();
    // The first edit of a manifest is its snapshot.
    let snapshot_is_due = |read: &[RecordDescription]| {
        kind == FileKind::Manifest && read.iter().all(|record| record.kind != EDIT)
    };
    let mut ended = false;
    let ending = loop {
        let at = reader.offset();
        let (offset, detail) = match reader.next()? {
            FrameStep::Record(record) => {
                ended = record.kind == RecordKind::End;
                match describe(&mut reader, &record, header.number)? {
                    Ok((kind, fields)) => records.push(RecordDescription {
                        offset: record.offset,
                        bytes: record.end - record.offset,
                        frames: record.frames,
                        kind,
                        promise: record.promise,
                        fields,
                    }),
                    Err(detail) => break Ending::Corrupt { offset: record.offset, detail },
                }
                continue;
            }
            FrameStep::End if at < promise || snapshot_is_due(&records) => (at, "it ends here".to_owned()),
            FrameStep::End if ended => break Ending::Clean,
            FrameStep::End => break Ending::Open,
            FrameStep::Damage { offset, detail } => (offset, detail),
        };
        break match at < promise {
            true => Ending::Corrupt { offset, detail },
            false if snapshot_is_due(&records) => {
                let why = "the snapshot was synced before the manifest became current";
                Ending::Corrupt { offset, detail: format!("{detail}; {why}") }
            }
            false => Ending::Torn { offset: at, bytes: bytes.saturating_sub(at), detail },
        };
    };
    Ok(LogDescription {
        file: path.to_path_buf(),
        kind: if kind == FileKind::Wal { "log" } else { "manifest" },
        number: header.number,
        birth: header.birth.0,
        optional_features: header.optional,
        bytes,
        promise,
        records,
        ending,
    })
}

/// The kind of a manifest's edit records.
const EDIT: &str = "edit";

type Fields = Vec<(&'static str, String)>;
/// Kind and fields of a record, or the reason why it cannot be decoded.
type Described = Decoded<(&'static str, Fields)>;

/// Bytes as text: printable ASCII is unchanged, other bytes are `\xNN`.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}
