//! Floors: for each log, the offset below which all bytes are known to be durable.
//!
//! A floor is the highest promise about the log in any file: in the log itself, in the head of the
//! next log, in any later log (which promises the whole of earlier ones), or in the manifest.
//! Finding the floors is the first pass of recovery. It reads every log once and keeps only
//! headers, heads and one offset per log.

use std::path::{Path, PathBuf};

use shamba_env::Env;

use super::head::Head;
use super::log_file_name;
use crate::framing::codec::Decoded;
use crate::framing::{
    FileHeader, FileKind, FileWindow, FrameReader, FrameStep, HEADER_BYTES, HeaderFault, RecordKind, survey,
};
use crate::{Error, Result};
use shamba_key::LogNo;

/// Result of the first pass over one log.
#[derive(Debug)]
pub struct SurveyedLog {
    /// Number of the log.
    pub number: LogNo,
    /// Path of the file.
    pub path: PathBuf,
    /// Length of the file.
    pub file_bytes: u64,
    /// The file header, or the reason why it is not readable.
    pub header: Decoded<FileHeader>,
    /// The head and the offset of its end, or the reason why it is not readable.
    pub head: Decoded<(Head, u64)>,
    /// The highest promise in the log itself.
    pub promise: u64,
    /// The file is empty or holds only zeros: nothing that was written to it reached the disk.
    pub is_empty: bool,
    /// A record follows the head. After a power loss, other bytes can follow it: the space that was
    /// allocated for records has no defined content until it is synced.
    pub has_more_than_head: bool,
}

impl SurveyedLog {
    /// Reads a log and collects its promises.
    ///
    /// # Errors
    /// A read failed; `Unsupported` for a log of a newer version.
    pub fn survey(env: &Env, dir: &Path, number: LogNo) -> Result<Self> {
        let path = dir.join(log_file_name(number));
        let mut window = FileWindow::open(env, &path)?;
        let file_bytes = window.file_bytes();
        let start = window.at(0, HEADER_BYTES as usize)?;
        let header = match FileHeader::decode(FileKind::Wal, Some(number.0), start) {
            Ok(header) => Ok(header),
            Err(HeaderFault::Damaged(detail)) => Err(detail),
            Err(HeaderFault::Unsupported(detail)) => {
                return Err(Error::unsupported(&path, detail));
            }
        };
        let birth = header.as_ref().ok().map(|header| header.birth);
        let promise = survey::highest_promise(&mut window, number.0, birth)?;
        let is_empty = window.is_zero(0, file_bytes)?;
        let (head, has_more_than_head) = match birth {
            Some(birth) => {
                let mut reader = FrameReader::new(window, number.0, birth);
                // The next record may be as long as a batch, and is not looked at.
                reader.hold_one_frame();
                let head = read_head(&mut reader, number)?;
                let has_more = matches!(reader.next()?, FrameStep::Record(_));
                (head, has_more)
            }
            None => (Err("the file header is not readable".to_owned()), true),
        };
        debug_assert!(promise <= file_bytes, "log {number} of {file_bytes} bytes promises {promise}");
        Ok(Self { number, path, file_bytes, header, head, promise, is_empty, has_more_than_head })
    }

    /// Number of the predecessor that the head names.
    pub fn follows(&self) -> Option<LogNo> {
        let (head, _) = self.head.as_ref().ok()?;
        head.predecessor.map(|before| before.number)
    }
}

fn read_head(reader: &mut FrameReader, number: LogNo) -> Result<Decoded<(Head, u64)>> {
    Ok(match reader.next()? {
        FrameStep::Record(record) if record.kind == RecordKind::Head => {
            Head::decode(&record.payload, number).map(|head| (head, record.end))
        }
        FrameStep::Record(_) => Err("the first record is not a head".to_owned()),
        FrameStep::End => Err("the log ends before its head".to_owned()),
        FrameStep::Damage { detail, .. } => Err(detail),
    })
}

/// The part of a log that is promised to be durable, and the file that promises it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Floor {
    /// No promise: after a crash the log may be damaged anywhere, or missing.
    Nothing,
    /// Every byte below this offset is promised.
    Below {
        /// The end of the promised bytes.
        offset: u64,
        /// The file that promises them.
        by: String,
    },
    /// Everything that was ever written to the log is promised.
    Whole {
        /// The file that promises it.
        by: String,
    },
}

impl Floor {
    /// Whether the byte at `offset` is promised to be durable.
    pub fn covers(&self, offset: u64) -> bool {
        match self {
            Self::Nothing => false,
            Self::Below { offset: floor, .. } => offset < *floor,
            Self::Whole { .. } => true,
        }
    }

    /// Minimum length of the file; shorter is corruption.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Below { offset, .. } => *offset,
            Self::Nothing | Self::Whole { .. } => 0,
        }
    }

    /// The promise and its source, for error messages.
    pub fn reason(&self) -> String {
        match self {
            Self::Nothing => "nothing of the log was promised".to_owned(),
            Self::Below { offset, by } => format!("{by} promises everything below {offset}"),
            Self::Whole { by } => format!("{by} promises the whole log"),
        }
    }
}

/// Returns the floor of log `number`, which need not be in `logs`.
pub fn floor_of(number: LogNo, logs: &[SurveyedLog], manifest: Option<(LogNo, u64)>) -> Floor {
    debug_assert!(
        logs.is_sorted_by(|log, next| log.number < next.number),
        "the surveyed logs are not in the order of their numbers"
    );
    let mut floor = Floor::Nothing;
    let mut raise = |about: LogNo, offset: u64, by: &dyn Fn() -> String| {
        if offset == 0 || about < number || matches!(floor, Floor::Whole { .. }) {
            return;
        }
        if about > number {
            floor = Floor::Whole { by: by() };
        } else if offset > floor.bytes() {
            floor = Floor::Below { offset, by: by() };
        }
    };
    if let Some((about, offset)) = manifest {
        raise(about, offset, &|| "the manifest".to_owned());
    }
    for log in logs {
        raise(log.number, log.promise, &|| log_file_name(log.number));
        if let Ok((Head { predecessor: Some(before), .. }, _)) = &log.head {
            raise(before.number, before.synced, &|| format!("the head of {}", log_file_name(log.number)));
        }
    }
    floor
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(number: u64, promise: u64) -> SurveyedLog {
        SurveyedLog {
            number: LogNo(number),
            path: PathBuf::from(log_file_name(LogNo(number))),
            file_bytes: 1_000,
            header: Err("not read".to_owned()),
            head: Err("not read".to_owned()),
            promise,
            is_empty: false,
            has_more_than_head: true,
        }
    }

    #[test]
    fn the_highest_promise_counts_and_of_equal_ones_the_first() {
        let below = |offset, by: &str| Floor::Below { offset, by: by.to_owned() };
        let floor = |promise, manifest| floor_of(LogNo(3), &[log(3, promise)], Some((LogNo(3), manifest)));
        assert_eq!(floor(0, 0), Floor::Nothing);
        assert_eq!(floor(100, 99), below(100, "000003.log"));
        assert_eq!(floor(99, 100), below(100, "the manifest"));
        assert_eq!(floor(100, 100), below(100, "the manifest"));
        let logs = [log(3, 100), log(4, 1), log(5, 900)];
        assert_eq!(floor_of(LogNo(3), &logs, None), Floor::Whole { by: "000004.log".to_owned() });
        assert_eq!(floor_of(LogNo(5), &logs, Some((LogNo(4), 999))), below(900, "000005.log"));
    }
}
