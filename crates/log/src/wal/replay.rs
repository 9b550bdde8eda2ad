//! Replay: reads the batches of a chain of logs, up to the first damage.
//!
//! There are two passes. The first finds the promises ([`super::floor`]). The second returns the
//! batches in order and stops at the first fault: a damaged frame, a log that is shorter than a
//! promise or its successor states, a missing log, or a gap in the sequence numbers. If a promise
//! covers the place of the fault, it is corruption and the open fails ([`Recovery::Strict`]).
//! Otherwise it is the torn tail of an unclean stop: everything from there on is dropped, valid or
//! not, and a warning states its length. A failed read is neither; the error is returned.
//!
//! Replay writes nothing, and no old log is ever appended to again. The caller takes these steps in
//! this order, so that a dropped tail never comes back and a crash during recovery is
//! harmless:
//! 1. Put everything replayed, of all keyspaces, into synced tables; or, if it is little, keep it
//!    for step 2.
//! 2. Create a log *without predecessor*, and sync it. Either it is empty, and its base is the last
//!    sequence number of tables and logs. Or it begins with a copy of the replayed batches, its
//!    head names the first log that was copied (`copy_of`), and none of its frames contains a
//!    promise yet.
//! 3. Append one manifest edit that adds the tables, sets `first_log` to exactly that log and
//!    promises its length (`log_promise`), so that even its loss is detected.
//! 4. Only then append to the log and acknowledge writes. Unlink the old logs at any later time.
//!
//! A crash before step 3 leaves a log without predecessor that replay ignores: it has only a head,
//! or it is an unpromised copy of the logs that are still valid. A crash after step 3 leaves the
//! old logs obsolete. Promises continue with the new log: the manifest promises the copy, and the
//! first sync of a later write promises all of the log, which by then is the only one.
//!
//! Logs of which nothing was dropped may instead stay valid: the next log follows the last of them
//! with [`WalWriter::predecessor`], as after a rotation, and what was replayed goes to tables
//! later. Until then neither a sync nor a manifest edit may promise that log, because its promises
//! would cover logs of which it is unknown how much is durable.
//!
//! A new database does the same, with a manifest whose `first_log` is the log that it creates next.
//! Later, a log follows another with [`WalWriter::predecessor`], and `first_log` moves to a log
//! whose name is durable. A flush is installed after the log is synced through its highest sequence
//! number, with the promise in the same edit, unless its entries were replayed.
//!
//! Not here: the manifest, and how a batch is applied.
//!
//! [`WalWriter::predecessor`]: super::WalWriter::predecessor

use std::path::Path;

use shamba_env::Env;
use shamba_key::SeqNo;

use super::floor::{Floor, SurveyedLog, floor_of};
use super::head::{Head, Predecessor};
use super::log_file_name;
use super::record::RecordView;
use super::replayed::{Replayed, StreamedBatches};
use super::report::{ReplayReport, ReplayWarning, ReplayedLog};
use super::stream::check;
use super::value::ValueLog;
use crate::framing::payload::Stop;
use crate::framing::{FileWindow, FrameReader, FrameStep, HEADER_BYTES, Record, RecordKind};
use crate::{Error, Result};
use shamba_key::LogNo;

/// Handling of damage that a promise covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Recovery {
    /// The replay fails.
    #[default]
    Strict,
    /// The replay keeps everything before the damage and adds a warning.
    PointInTime,
}

/// Inputs of replay besides the logs.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayOptions {
    /// Logs below this one are obsolete.
    pub first_log: LogNo,
    /// The promise in the manifest: a log and an offset.
    pub promise: Option<(LogNo, u64)>,
    /// Last sequence number recorded in the manifest. Numbers up to it may belong to writes that no
    /// log records, so a gap below it is no damage.
    pub known_seq: SeqNo,
    /// Handling of damage below a promise.
    pub recovery: Recovery,
    /// Longer values stay in the log, if their batch is a multi-frame record.
    pub held_bytes_max: u64,
}

/// Passes every batch of the logs from `first_log` on to `apply`, in order. `logs` are the numbers
/// of the log files in `dir`, in any order.
///
/// # Errors
/// `Corruption` as described above, `Unsupported` for a log of a newer version, a failed read, or
/// an error of `apply`. Batches before the error were applied already: the caller discards the
/// results.
pub fn replay<E: From<Error>>(
    env: &Env,
    dir: &Path,
    logs: &[LogNo],
    options: &ReplayOptions,
    apply: &mut dyn FnMut(Replayed<'_>) -> Result<(), E>,
) -> Result<ReplayReport, E> {
    let mut numbers: Vec<LogNo> = logs.iter().copied().filter(|&log| log >= options.first_log).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut surveyed = Vec::with_capacity(numbers.len());
    for number in numbers {
        surveyed.push(SurveyedLog::survey(env, dir, number)?);
    }
    let report = ReplayReport::default();
    let replay = Replay { env, dir, options, logs: &surveyed, apply, report, chained: None, stopped: false };
    replay.run()
}

/// End of the log replayed last.
struct Chained {
    number: LogNo,
    end: u64,
    /// Offset of its last record.
    last_offset: u64,
    last_checksum: u32,
    clean: bool,
}

struct Replay<'a, E> {
    env: &'a Env,
    dir: &'a Path,
    options: &'a ReplayOptions,
    logs: &'a [SurveyedLog],
    apply: &'a mut dyn FnMut(Replayed<'_>) -> Result<(), E>,
    report: ReplayReport,
    chained: Option<Chained>,
    stopped: bool,
}

impl<E: From<Error>> Replay<'_, E> {
    fn run(mut self) -> Result<ReplayReport, E> {
        self.look_for_the_promised_log()?;
        let logs = self.logs;
        let abandoned = abandoned(logs);
        for log in logs {
            self.report.logs.push(ReplayedLog {
                number: log.number,
                file_bytes: log.file_bytes,
                valid_bytes: 0,
                last_seq: self.report.last_seq,
                last_checksum: 0,
                promised: match self.floor(log.number) {
                    Floor::Whole { .. } => u64::MAX,
                    floor => floor.bytes(),
                },
                clean: false,
            });
            if abandoned.contains(&log.number) {
                continue;
            }
            if self.stopped {
                self.warn(&log.path, 0, log.file_bytes, "it follows ignored bytes".to_owned());
            } else if self.link(log)? {
                self.read(log)?;
            }
        }
        debug_assert_eq!(self.report.logs.len(), logs.len(), "a log is missing from the report");
        debug_assert!(
            !self.stopped || !self.report.warnings.is_empty(),
            "replay left a part out without a warning"
        );
        let last_is_clean = self.chained.as_ref().is_none_or(|last| last.clean);
        self.report.clean = last_is_clean && self.report.warnings.is_empty();
        Ok(self.report)
    }

    /// Checks that the log which the manifest promises exists, even if no log follows it. Once the
    /// manifest contains any promise, the first log must exist, too. (Only the first log of a new
    /// database is created after the edit that names it, and that edit contains no promise.)
    fn look_for_the_promised_log(&mut self) -> Result<()> {
        let Some((promised, bytes)) = self.options.promise.filter(|(_, bytes)| *bytes > 0) else {
            return Ok(());
        };
        let number = promised.max(self.options.first_log);
        if self.logs.iter().any(|log| log.number == number) {
            return Ok(());
        }
        let path = self.dir.join(log_file_name(number));
        let (bytes, reason) = match number == promised {
            true => (bytes, self.floor(number).reason()),
            false => (0, "the manifest names it".to_owned()),
        };
        self.disagreement(&path, 0, bytes, "log file", format!("it is missing; {reason}"))?;
        // Earlier logs are still valid; replay stops by itself where the chain is broken.
        self.stopped = false;
        Ok(())
    }

    /// Checks that the log continues where the one before it ended. Returns `false` if the log must
    /// not be read.
    fn link(&mut self, log: &SurveyedLog) -> Result<bool> {
        if let Err(detail) = &log.header {
            if log.is_empty && !self.floor(log.number).covers(0) {
                // Created and never synced. Whether it ever held a batch is unknown, hence the
                // warning.
                self.stop(&log.path, 0, 0, "it is empty: no write of it reached the disk".to_owned());
                return Ok(false);
            }
            self.fault(log.number, &log.path, 0, log.file_bytes, "log header", detail.clone())?;
            return Ok(false);
        }
        let (head, head_end) = match &log.head {
            Ok(head) => head,
            Err(detail) => {
                let bytes = log.file_bytes.saturating_sub(HEADER_BYTES);
                self.fault(log.number, &log.path, HEADER_BYTES, bytes, "log head", detail.clone())?;
                return Ok(false);
            }
        };
        let Some(before) = head.predecessor else { return self.link_first(log, *head_end) };
        match self.chained.take() {
            Some(chained) if chained.number == before.number => {
                self.check_joint(&chained, &before, log)?;
                self.chained = Some(chained);
                Ok(!self.stopped)
            }
            None if before.number < self.options.first_log => Ok(true),
            chained => {
                self.chained = chained;
                let path = self.dir.join(log_file_name(before.number));
                let detail = format!("it is missing, but {} follows it", log_file_name(log.number));
                self.fault(before.number, &path, 0, before.bytes, "log file", detail)?;
                self.warn(&log.path, 0, log.file_bytes, "it follows a missing log".to_owned());
                Ok(false)
            }
        }
    }

    /// Handles a log without predecessor: it begins a chain, or belongs to a recovery that did not
    /// complete.
    fn link_first(&mut self, log: &SurveyedLog, head_end: u64) -> Result<bool> {
        if log.number == self.options.first_log {
            return Ok(true);
        }
        // Of the first log that is needed; or of a later one, if a manifest between them, which a
        // failed open had put in force, was lost with the power.
        let first = self.options.first_log;
        let is_copy = matches!(&log.head, Ok((head, _)) if head.copy_of.is_some_and(|log| log >= first));
        if log.promise == 0 && (is_copy || !log.has_more_than_head) {
            return Ok(false);
        }
        let detail = format!("it begins a new chain, but the manifest needs the logs from {first} on");
        // No crash causes this: the manifest names a log before anything is appended to it.
        self.disagreement(&log.path, head_end, log.file_bytes.saturating_sub(head_end), "log head", detail)?;
        Ok(false)
    }

    /// Compares the end of a log with the predecessor fields in the head of the next one.
    fn check_joint(&mut self, chained: &Chained, before: &Predecessor, log: &SurveyedLog) -> Result<()> {
        debug_assert_eq!(chained.number, before.number, "the joint of log {} with another", log.number);
        let path = self.dir.join(log_file_name(chained.number));
        let next = log_file_name(log.number);
        let mut lost = None;
        if chained.end != before.bytes {
            let detail = format!("it ends here, but {next} states {} bytes", before.bytes);
            lost = Some((chained.end, before.bytes.saturating_sub(chained.end), detail));
        } else if chained.last_checksum != before.last_checksum || self.report.last_seq != before.last_seq {
            let detail = format!("its last record differs from the one that {next} names");
            lost = Some((chained.last_offset, 0, detail));
        }
        if let Some((offset, bytes, detail)) = lost {
            self.fault(chained.number, &path, offset, bytes, "log frame", detail)?;
            self.warn(&log.path, 0, log.file_bytes, "it follows ignored bytes".to_owned());
        }
        Ok(())
    }

    /// Applies the batches of a log.
    fn read(&mut self, log: &SurveyedLog) -> Result<(), E> {
        debug_assert!(!self.stopped, "log {} lies after the end of replay", log.number);
        debug_assert!(
            self.chained.as_ref().is_none_or(|before| before.number < log.number),
            "log {} is replayed after a later one",
            log.number
        );
        let (Ok(header), Ok((head, _))) = (&log.header, &log.head) else { return Ok(()) };
        let window = FileWindow::open(self.env, &log.path)?;
        let mut reader = FrameReader::new(window, log.number.0, header.birth);
        reader.hold_one_frame();
        if let Some(stated) = self.stated_bytes(log.number) {
            // Bytes beyond the stated length are the remains of a failed append.
            reader.limit_to(stated);
        }
        self.report.last_seq = self.report.last_seq.max(head.base_seq);
        let mut chained =
            Chained { number: log.number, end: 0, last_offset: 0, last_checksum: 0, clean: false };
        loop {
            let at = reader.offset();
            match reader.next()? {
                FrameStep::Record(record) => {
                    self.record(log, &mut reader, &record, chained.clean)?;
                    if self.stopped {
                        break;
                    }
                    debug_assert_eq!(record.offset, at, "the reader skipped bytes of log {}", log.number);
                    chained.clean |= record.kind == RecordKind::End;
                    chained.last_offset = record.offset;
                    chained.last_checksum = record.checksum;
                    chained.end = record.end;
                }
                FrameStep::End => break,
                FrameStep::Damage { offset, detail } => {
                    // Promises lie between records: one that covers the bad frame covers the whole
                    // record. A torn tail begins at the record; corruption is reported at the
                    // frame.
                    let bytes = log.file_bytes.saturating_sub(at);
                    let place = if self.floor(log.number).covers(at) { offset } else { at };
                    self.fault(log.number, &log.path, place, bytes, "log frame", detail)?;
                    break;
                }
            }
        }
        let floor = self.floor(log.number);
        if !self.stopped && floor.bytes() > chained.end {
            let missing = floor.bytes() - chained.end;
            let detail = "it ends here".to_owned();
            self.fault(log.number, &log.path, chained.end, missing, "log frame", detail)?;
        }
        if let Some(entry) = self.report.logs.last_mut() {
            entry.valid_bytes = chained.end;
            entry.last_seq = self.report.last_seq;
            entry.last_checksum = chained.last_checksum;
            entry.clean = chained.clean;
        }
        self.chained = Some(chained);
        Ok(())
    }

    /// Applies one record.
    fn record(
        &mut self,
        log: &SurveyedLog,
        reader: &mut FrameReader,
        record: &Record,
        ended: bool,
    ) -> Result<(), E> {
        let bytes = log.file_bytes.saturating_sub(record.offset);
        if ended || (record.kind == RecordKind::Head && record.offset != HEADER_BYTES) {
            let detail = match ended {
                true => "a record after the end marker",
                false => "a head inside the log",
            };
            return Ok(self.disagreement(
                &log.path,
                record.offset,
                bytes,
                "log record",
                detail.to_owned(),
            )?);
        }
        if record.kind != RecordKind::Data {
            return Ok(());
        }
        if record.payload_bytes > record.payload.len() as u64 {
            return self.long_record(log, reader, record);
        }
        let batches = match RecordView::decode(&record.payload, self.report.last_seq) {
            Ok(batches) => batches,
            // The checksum is valid, so the record was written like this: no crash causes it.
            Err(detail) => return Ok(self.disagreement(&log.path, record.offset, bytes, "batch", detail)?),
        };
        if self.follows(log, record, batches.first_seq())? {
            for batch in batches.batches() {
                debug_assert!(
                    batch.first_seq() > self.report.last_seq,
                    "the batch at {} overlaps those up to {}",
                    batch.first_seq(),
                    self.report.last_seq
                );
                self.report.last_seq = batch.last_seq();
                self.report.batches += 1;
                self.report.ops += u64::from(batch.count());
                (self.apply)(Replayed::Held(batch))?;
            }
        }
        Ok(())
    }

    /// Applies a record that is not held in memory.
    fn long_record(&mut self, log: &SurveyedLog, reader: &mut FrameReader, record: &Record) -> Result<(), E> {
        let checked = match check(reader.payload_of(record), self.report.last_seq) {
            Ok(checked) => checked,
            Err(Stop::Failed(error)) => return Err(error.into()),
            Err(Stop::Malformed(detail)) => {
                let bytes = log.file_bytes.saturating_sub(record.offset);
                return Ok(self.disagreement(&log.path, record.offset, bytes, "batch", detail)?);
            }
        };
        if !self.follows(log, record, checked.first_seq)? {
            return Ok(());
        }
        debug_assert!(
            self.report.last_seq < checked.first_seq && checked.first_seq <= checked.last_seq,
            "{checked:?} after {}",
            self.report.last_seq
        );
        self.report.last_seq = checked.last_seq;
        self.report.batches += checked.batches;
        self.report.ops += checked.ops;
        let Ok(header) = &log.header else { return Ok(()) };
        (self.apply)(Replayed::Streamed(StreamedBatches {
            reader,
            record,
            first_seq: checked.first_seq,
            held_bytes_max: self.options.held_bytes_max,
            log: ValueLog::new(self.env, &log.path, log.number, header.birth),
        }))
    }

    /// Whether a record's first sequence number is the expected one.
    fn follows(&mut self, log: &SurveyedLog, record: &Record, first_seq: SeqNo) -> Result<bool> {
        let due = self.report.last_seq.0.saturating_add(1);
        let first = first_seq.0;
        let explained = first > due && first - 1 <= self.options.known_seq.0;
        if first == due || explained {
            return Ok(true);
        }
        let bytes = log.file_bytes.saturating_sub(record.offset);
        let detail = format!("it begins with sequence number {first}, expected {due}");
        self.fault(log.number, &log.path, record.offset, bytes, "batch", detail)?;
        Ok(false)
    }

    /// Length of the log according to the head of the next one.
    fn stated_bytes(&self, number: LogNo) -> Option<u64> {
        self.logs.iter().find_map(|log| match &log.head {
            Ok((Head { predecessor: Some(before), .. }, _)) if before.number == number => Some(before.bytes),
            _ => None,
        })
    }

    fn floor(&self, number: LogNo) -> Floor {
        floor_of(number, self.logs, self.options.promise)
    }

    /// Handles a fault at `offset`: an error if a promise covers it, otherwise the end of replay.
    fn fault(
        &mut self,
        number: LogNo,
        path: &Path,
        offset: u64,
        bytes: u64,
        structure: &'static str,
        detail: String,
    ) -> Result<()> {
        let floor = self.floor(number);
        if !floor.covers(offset) {
            self.stop(path, offset, bytes, detail);
            return Ok(());
        }
        self.disagreement(path, offset, bytes, structure, format!("{detail}; {}", floor.reason()))
    }

    /// Handles a fault that no crash explains: an error, except in point-in-time recovery.
    fn disagreement(
        &mut self,
        path: &Path,
        offset: u64,
        bytes: u64,
        structure: &'static str,
        detail: String,
    ) -> Result<()> {
        if self.options.recovery == Recovery::Strict {
            return Err(Error::corruption(path, offset, structure, detail));
        }
        self.stop(path, offset, bytes, detail);
        Ok(())
    }

    fn stop(&mut self, path: &Path, offset: u64, bytes: u64, reason: String) {
        self.stopped = true;
        self.warn(path, offset, bytes, reason);
    }

    fn warn(&mut self, path: &Path, offset: u64, bytes: u64, reason: String) {
        self.report.warnings.push(ReplayWarning { file: path.to_path_buf(), offset, bytes, reason });
    }
}

/// Logs whose creation failed after the file existed: a later log names an earlier predecessor, and
/// no promise covers them.
fn abandoned(logs: &[SurveyedLog]) -> Vec<LogNo> {
    debug_assert!(
        logs.is_sorted_by(|log, next| log.number < next.number),
        "the surveyed logs are not in the order of their numbers"
    );
    let mut abandoned = Vec::new();
    let mut followed = None;
    for log in logs.iter().rev() {
        match followed {
            Some(followed) if log.number > followed && log.promise == 0 => abandoned.push(log.number),
            _ => followed = log.follows(),
        }
    }
    abandoned
}
