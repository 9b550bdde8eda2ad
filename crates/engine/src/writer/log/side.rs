//! Side files: hold the long values of a database without a log until they are flushed.
//!
//! A value that would fill much of the write buffer goes to `NNNNNN.val`, in the same framing as a
//! log's records ([`shamba_log::framing`]). Its memtable entry refers to it as to a value in a log
//! ([`shamba_log::wal::ValueLog`]). The file belongs to the memtables that are active while it is
//! written. It is never synced and promises nothing. It is removed when those memtables are
//! flushed, or by the next open.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use shamba_env::Env;

use crate::catalog::LogFile;
use crate::error::Result;
use shamba_key::{LogNo, MAX_VALUE_BYTES};
use shamba_log::framing::{FileKind, FrameWriter};
use shamba_log::wal::{ValueLog, ValuePlace};

/// The file name of a side file.
fn side_file_name(number: LogNo) -> String {
    format!("{:06}.val", number.0)
}

/// Parses the name of a side file; `None` for any other file.
pub(crate) fn parse_side_file_name(name: &str) -> Option<LogNo> {
    let number = LogNo(name.strip_suffix(".val")?.parse().ok()?);
    (number.0 > 0 && side_file_name(number) == name).then_some(number)
}

/// The side file that long values are appended to.
pub(crate) struct SideFile {
    frames: FrameWriter,
    values: Arc<ValueLog>,
}

impl SideFile {
    /// Creates the file.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn create(env: &Env, dir: &Path, number: LogNo) -> Result<Self> {
        let path = dir.join(side_file_name(number));
        let frames = FrameWriter::create(env, &path, FileKind::Values, number.0)?;
        let values = ValueLog::new(env, &path, number, frames.birth());
        Ok(Self { frames, values })
    }

    /// Appends a value and passes it to the operating system. The value is copied only frame by
    /// frame.
    ///
    /// # Errors
    /// Errors of the file system; nothing more can be appended after one.
    pub fn append(&mut self, value: &[u8]) -> Result<ValuePlace> {
        assert!(value.len() <= MAX_VALUE_BYTES, "a value of {} bytes is written unchecked", value.len());
        let record = self.frames.append_record(&[value])?;
        self.frames.flush()?;
        // At most 256 MiB: its length was checked.
        Ok(ValuePlace { log: self.values.number(), record, at: 0, bytes: value.len() as u32 })
    }

    /// The values in the form in which memtables refer to them.
    pub fn values(&self) -> &Arc<ValueLog> {
        &self.values
    }

    /// Length of the file.
    pub fn bytes(&self) -> u64 {
        self.frames.offset()
    }

    /// The file, once nothing more will be appended.
    pub fn into_file(self) -> LogFile {
        let path: PathBuf = self.frames.path().to_path_buf();
        LogFile { path, values: Arc::downgrade(&self.values), ..LogFile::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_others() {
        assert_eq!(side_file_name(LogNo(12)), "000012.val");
        assert_eq!(parse_side_file_name("000012.val"), Some(LogNo(12)));
        assert_eq!(parse_side_file_name("12345678.val"), Some(LogNo(12_345_678)));
        for other in ["000000.val", "12.val", "+00012.val", "000012.log", "000012.val.tmp", ".val"] {
            assert_eq!(parse_side_file_name(other), None, "{other}");
        }
    }
}
