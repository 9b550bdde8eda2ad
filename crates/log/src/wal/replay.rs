//! Replay: what a chain of logs says, up to where it can be trusted.
//!
//! Two passes: the first finds what is promised ([`super::floor`]), the second gives the batches in order and
//! stops at the first thing that is not as it was written: a damaged frame, a log shorter than a promise or
//! than its successor says, a missing log, a gap in the sequence. If a promise covers the place it is
//! corruption and the open fails ([`Recovery::Strict`]); else it is the tail of an unclean stop: everything
//! from there on is left out, valid or not, and a warning says how much. A read error is neither.
//!
//! What the caller must do, so that a tail once left out never comes back and no recovery needs another's
//! luck. Nothing here writes, and no log is ever appended to again; then, in this order:
//! 1. put everything replayed into tables, all keyspaces, synced; or, if it is little, keep it for step 2;
//! 2. create a log *without predecessor*, and sync it. Its base is the last sequence number of tables and
//!    logs, and it is empty; or it begins with a copy of what was replayed, its head names the first log
//!    that the copy was made from (`copy_of`), and none of its frames promises anything yet;
//! 3. append one manifest edit that adds the tables, moves `first_log` to that log exactly and promises its
//!    length (`log_promise`), so that even its loss is noticed;
//! 4. only then append to the log and acknowledge; unlink the old logs when convenient.
//!
//! A crash before 3 leaves a log without predecessor that replay ignores: it has nothing but a head, or it
//! is an unpromised copy of the logs that still count. A crash after 3 leaves the old logs obsolete. The
//! promises continue with the new log: the manifest promises the copy, and the first sync of a later write
//! promises all of the log, which by then is the only one. A new database does the same with a manifest whose `first_log` is
//! the log that it is about to create. Later, a log follows another with [`WalWriter::predecessor`] and
//! `first_log` moves to a log whose name is durable; a flush is installed after the log is synced through it,
//! with the promise in the same edit.
//!
//! Not here: the manifest, and what to do with a batch.
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
use crate::framing::{FrameReader, HEADER_BYTES, Record, RecordKind, Step, Window};
use crate::{Error, Result};
use shamba_key::LogNo;
use shamba_key::planted::{Defect, is_planted};

/// What to do about damage that a promise covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Recovery {
    /// Fail.
    #[default]
    Strict,
    /// Keep what comes before it and warn.
    PointInTime,
}

/// What replay must know from elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayOptions {
    /// Logs below this one are dead.
    pub first_log: LogNo,
    /// What the manifest promises.
    pub promise: Option<(LogNo, u64)>,
    /// Sequence numbers up to this one may have gone to writes that no log has, says the manifest: a gap
    /// below it is no damage.
    pub known_seq: SeqNo,
    /// What to do about damage below a promise.
    pub recovery: Recovery,
    /// Values longer than this stay in the log, if their batch has a record of several frames.
    pub held_bytes_max: u64,
}

/// Gives every batch of the logs from `first_log` on to `apply`, in order. `logs` are the numbers of the log
/// files in `dir`, in any order.
///
/// # Errors
/// `Corruption` as described above, `Unsupported` for a log of a newer version, what reading says, what
/// `apply` says. Batches before the error were applied: the caller drops what it made of them.
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

/// Where the log replayed last ended.
struct Chained {
    number: LogNo,
    end: u64,
    /// Where its last record begins.
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
                self.warn(&log.path, 0, log.file_bytes, "it follows what was left out".to_owned());
            } else if self.link(log)? {
                self.read(log)?;
            }
        }
        let last_is_clean = self.chained.as_ref().is_none_or(|last| last.clean);
        self.report.clean = last_is_clean && self.report.warnings.is_empty();
        Ok(self.report)
    }

    /// A log that the manifest promises something of must be there, even if nothing follows it. So must the
    /// first one once the manifest has promised anything: only that of a new database is made after the
    /// edit that names it, and that edit promises nothing.
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
        // Earlier logs are still good; where the chain is broken, it stops by itself.
        self.stopped = false;
        Ok(())
    }

    /// Whether the log carries on where the one before it ended. `false`: it is not to be read.
    fn link(&mut self, log: &SurveyedLog) -> Result<bool> {
        if let Err(detail) = &log.header {
            if log.file_bytes == 0 && !self.floor(log.number).covers(0) {
                // Created and never synced. Whether anything was in it nobody knows, so it is worth a word.
                self.stop(&log.path, 0, 0, "it is empty: nothing of it reached the disk".to_owned());
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
                let detail = format!("it is missing, and {} follows it", log_file_name(log.number));
                self.fault(before.number, &path, 0, before.bytes, "log file", detail)?;
                self.warn(&log.path, 0, log.file_bytes, "it follows a missing log".to_owned());
                Ok(false)
            }
        }
    }

    /// A log without predecessor begins a chain, or was made by a recovery that did not end.
    fn link_first(&mut self, log: &SurveyedLog, head_end: u64) -> Result<bool> {
        if log.number == self.options.first_log {
            return Ok(true);
        }
        let is_copy = matches!(&log.head, Ok((head, _)) if head.copy_of == Some(self.options.first_log));
        if log.promise == 0 && (is_copy || !log.has_more_than_head()) {
            return Ok(false);
        }
        let first = self.options.first_log;
        let detail = format!("it begins a new chain, but the manifest needs the logs from {first} on");
        // No crash leaves this: the manifest moves to a log before anything is appended to it.
        self.disagreement(&log.path, head_end, log.file_bytes.saturating_sub(head_end), "log head", detail)?;
        Ok(false)
    }

    /// Holds the end of a log against what the next one says of it.
    fn check_joint(&mut self, chained: &Chained, before: &Predecessor, log: &SurveyedLog) -> Result<()> {
        if is_planted(Defect::JointUnchecked) {
            return Ok(());
        }
        let path = self.dir.join(log_file_name(chained.number));
        let next = log_file_name(log.number);
        let mut lost = None;
        if chained.end != before.bytes {
            let detail = format!("it ends here, and {next} says that it had {} bytes", before.bytes);
            lost = Some((chained.end, before.bytes.saturating_sub(chained.end), detail));
        } else if chained.last_checksum != before.last_checksum || self.report.last_seq != before.last_seq {
            let detail = format!("its last record is not the one that {next} names");
            lost = Some((chained.last_offset, 0, detail));
        }
        if let Some((offset, bytes, detail)) = lost {
            self.fault(chained.number, &path, offset, bytes, "log frame", detail)?;
            self.warn(&log.path, 0, log.file_bytes, "it follows what was left out".to_owned());
        }
        Ok(())
    }

    /// Applies a log's batches.
    fn read(&mut self, log: &SurveyedLog) -> Result<(), E> {
        let (Ok(header), Ok((head, _))) = (&log.header, &log.head) else { return Ok(()) };
        let window = Window::open(self.env, &log.path)?;
        let mut reader = FrameReader::new(window, log.number.0, header.birth);
        reader.hold_one_frame();
        if let Some(stated) = self.stated_bytes(log.number) {
            // What lies beyond was left by an append that failed.
            reader.limit_to(stated);
        }
        self.report.last_seq = self.report.last_seq.max(head.base_seq);
        let mut chained =
            Chained { number: log.number, end: 0, last_offset: 0, last_checksum: 0, clean: false };
        loop {
            let at = reader.offset();
            match reader.next()? {
                Step::Record(record) => {
                    self.record(log, &mut reader, &record, chained.clean)?;
                    if self.stopped {
                        break;
                    }
                    chained.clean |= record.kind == RecordKind::End;
                    chained.last_offset = record.offset;
                    chained.last_checksum = record.checksum;
                    chained.end = record.end;
                }
                Step::End => break,
                Step::Damage { offset, detail } => {
                    // Promises lie between records: if one covers the bad frame it covers the record. What
                    // is left out is the record; what is corrupt is the frame.
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

    /// Takes one record.
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
            // Checksums say that it was written so: not the work of a crash.
            Err(detail) => return Ok(self.disagreement(&log.path, record.offset, bytes, "batch", detail)?),
        };
        if self.follows(log, record, batches.first_seq())? {
            for batch in batches.batches() {
                self.report.last_seq = batch.last_seq();
                self.report.batches += 1;
                self.report.ops += u64::from(batch.count());
                (self.apply)(Replayed::Held(batch))?;
            }
        }
        Ok(())
    }

    /// Takes a record that is not held.
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

    /// Whether a record's first sequence number is the one that is due.
    fn follows(&mut self, log: &SurveyedLog, record: &Record, first_seq: SeqNo) -> Result<bool> {
        let due = self.report.last_seq.0.saturating_add(1);
        let first = first_seq.0;
        let explained = first > due && first - 1 <= self.options.known_seq.0;
        if first == due || explained || is_planted(Defect::SequenceGap) {
            return Ok(true);
        }
        let bytes = log.file_bytes.saturating_sub(record.offset);
        let detail = format!("it begins with sequence number {first}, {due} was due");
        self.fault(log.number, &log.path, record.offset, bytes, "batch", detail)?;
        Ok(false)
    }

    /// How long the log was when the next one took over.
    fn stated_bytes(&self, number: LogNo) -> Option<u64> {
        self.logs.iter().find_map(|log| match &log.head {
            Ok((Head { predecessor: Some(before), .. }, _)) if before.number == number => Some(before.bytes),
            _ => None,
        })
    }

    fn floor(&self, number: LogNo) -> Floor {
        floor_of(number, self.logs, self.options.promise)
    }

    /// Something is not as it was written: an error below a promise, else the end of replay.
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

    /// Something that no crash explains: an error, unless the caller wants what comes before it.
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

/// Logs whose creation failed after the file was there: a later log names an earlier predecessor, and
/// nothing was ever promised of them.
fn abandoned(logs: &[SurveyedLog]) -> Vec<LogNo> {
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
