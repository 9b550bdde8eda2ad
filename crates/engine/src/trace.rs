//! Traces: the operations of a database, in order, as a text file that can be replayed.
//!
//! [`crate::Db::record_trace`] begins a [`Recording`]. Until it ends, every successful operation of
//! every handle becomes a [`Line`], with its key and the length of its value. While there is no
//! recording, an operation only loads a flag. If the file cannot be written, the recording ends and
//! the operation succeeds.
//!
//! Writes are recorded between their log append and their publication. The recording's lock is held
//! until they are visible, so no read that sees a write is recorded before it. The result of a
//! lookup is recorded only if nothing was written between its start and its record, and it did not
//! read a snapshot. Then a database that replays the trace line by line returns the same result.
//!
//! Batches are recorded as their operations, `multi_get` as its lookups. A scan is recorded when it
//! ends or is repositioned, with the number of entries read until then. Flushes, compactions,
//! `explain` and checks are not recorded. Ingested entries are not recorded either; a remark states
//! their number.
//!
//! Lock order: the recording's lock is taken last, after that of the writer if that is held.
//!
//! Not here: the format of a line ([`Line`]), reading and replaying a trace file (crate
//! `shamba-workload`).

pub(crate) mod line;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shamba_env::{Env, WriteFile, append_all};
use shamba_table::Charge;

pub use self::line::{HEADER, Line, Payload};

use crate::error::{Error, Result};
use crate::lock_order;
use crate::ranked::{Ranked, RankedGuard};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::telemetry::Telemetry;
use shamba_key::{Expiry, KeyspaceId};
use shamba_log::wal::OpRef;
use shamba_tree::iter::notes::{ScanObserver, ScanPart};

/// The buffer is written to the file when it reaches this size.
pub(crate) const BUFFER_BYTES: usize = 64 << 10;

/// The recording of a database, if there is one.
pub(crate) struct TraceRecorder {
    env: Env,
    is_on: AtomicBool,
    open: Ranked<Option<Open>>,
    telemetry: Arc<Telemetry>,
}

/// A recording that has not been finished; a failure may have ended it.
struct Open {
    /// Distinguishes it from other recordings of this database.
    number: u64,
    path: PathBuf,
    file: Box<dyn WriteFile>,
    buffer: Vec<u8>,
    _charge: Charge,
    operations: u64,
    bytes: u64,
    /// Number of changes to the content since the recording began.
    changes: u64,
    /// The keyspace of the next line.
    keyspace: KeyspaceId,
    failure: Option<Error>,
}

/// State of a recording at which a lookup begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    number: u64,
    changes: u64,
}

impl Open {
    fn moment(&self) -> Moment {
        Moment { number: self.number, changes: self.changes }
    }

    /// Records an operation on a keyspace.
    fn operation(&mut self, id: KeyspaceId, name: &str, line: &Line<'_>) {
        if id != self.keyspace {
            Line::Keyspace { name: Cow::Borrowed(name) }.write(&mut self.buffer);
            self.keyspace = id;
        }
        debug_assert!(line.is_operation(), "{line:?} is counted as an operation");
        self.operations += 1;
        line.write(&mut self.buffer);
        self.write_if(BUFFER_BYTES);
    }

    /// Writes the buffer to the file, if it holds at least `bytes_min`.
    fn write_if(&mut self, bytes_min: usize) {
        if self.failure.is_none() && self.buffer.len() >= bytes_min {
            match append_all(self.file.as_mut(), &self.buffer) {
                Ok(()) => self.bytes += self.buffer.len() as u64,
                Err(error) => self.failure = Some(Error::io("write the trace", &self.path, error)),
            }
        }
        if self.failure.is_some() || self.buffer.len() >= bytes_min {
            self.buffer.clear();
        }
    }
}

impl TraceRecorder {
    /// No recording yet; its file is of `env`.
    pub fn new(env: &Env, telemetry: Arc<Telemetry>) -> Self {
        Self {
            env: env.clone(),
            is_on: AtomicBool::new(false),
            open: Ranked::new(lock_order::RECORDING, None),
            telemetry,
        }
    }

    /// Whether operations must be recorded.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Returns the current state of the recording, at which a lookup begins.
    pub fn moment(&self) -> Option<Moment> {
        self.open.lock().as_ref().map(Open::moment)
    }
}

/// A guard of the recording; no other thread records anything until it is dropped.
pub(crate) struct Noting<'a> {
    recorder: &'a TraceRecorder,
    open: Option<RankedGuard<'a, Option<Open>>>,
}

impl Noting<'_> {
    fn open(&mut self) -> Option<&mut Open> {
        self.open.as_mut()?.as_mut()
    }

    /// Records a write to the keyspace with this number and name.
    pub fn write(&mut self, id: KeyspaceId, name: &str, op: OpRef<'_>) {
        if let Some(open) = self.open() {
            open.changes += 1;
            open.operation(id, name, &line_of(op));
        }
    }

    /// Records that the keyspace of this name was dropped.
    pub fn gone(&mut self, name: &str) {
        if let Some(open) = self.open() {
            open.changes += 1;
            open.operation(open.keyspace, "", &Line::Gone { name: Cow::Borrowed(name) });
            // The next line must name its keyspace, even if it is one with the same number as the
            // dropped one.
            open.keyspace = KeyspaceId(u32::MAX);
        }
    }

    /// Adds a remark that `entries` entries were ingested without being recorded.
    pub fn ingested(&mut self, entries: u64) {
        if let Some(open) = self.open() {
            open.changes += 1;
            let remark = format!("# {entries} entries were ingested here\n");
            open.buffer.extend_from_slice(remark.as_bytes());
        }
    }
}

impl Drop for Noting<'_> {
    fn drop(&mut self) {
        let Some(failure) = self.open().and_then(|open| open.failure.clone()) else { return };
        let was_on = self.recorder.is_on.swap(false, Ordering::Relaxed);
        // Released first, because a listener may end the recording.
        self.open = None;
        if was_on {
            self.recorder.telemetry.warn(format!("the recording has ended: {}", failure.chain()));
        }
    }
}

impl TraceRecorder {
    /// Locks the recording, to record an operation in it.
    #[cold]
    pub fn noting(&self) -> Noting<'_> {
        Noting { recorder: self, open: Some(self.open.lock()) }
    }

    /// Records lookups in a keyspace that began at `asked`; `None` if they read a snapshot.
    pub fn note_lookups<'k>(
        &self,
        (id, name): (KeyspaceId, &str),
        asked: Option<Moment>,
        lookups: impl Iterator<Item = (&'k [u8], bool)>,
    ) {
        let mut noting = self.noting();
        let Some(open) = noting.open() else { return };
        let is_known = asked == Some(open.moment());
        for (key, found) in lookups {
            let line = Line::Get { key: Cow::Borrowed(key), found: is_known.then_some(found) };
            open.operation(id, name, &line);
        }
    }

    /// The observer that records a scan which begins now in a keyspace.
    #[cold]
    pub fn scan_notes(self: &Arc<Self>, (id, name): (KeyspaceId, &str)) -> Option<Arc<dyn ScanObserver>> {
        let number = self.moment()?.number;
        Some(Arc::new(ScanNotes { recorder: Arc::clone(self), keyspace: (id, name.to_owned()), number }))
    }

    /// Begins a recording to the file at `path`. `number` tells it from every other one of this
    /// database; `charge` is for [`BUFFER_BYTES`]. The caller excludes writers: every write is
    /// either before the recording and visible to all recorded reads, or part of it.
    ///
    /// # Errors
    /// See [`crate::Db::record_trace`].
    pub fn begin(self: &Arc<Self>, path: &Path, number: u64, charge: Charge) -> Result<Recording> {
        let mut open = self.open.lock();
        if let Some(other) = &*open {
            let path = other.path.display();
            return Err(Error::invalid(format!(
                "a trace is already being recorded to {path}; finish it first"
            )));
        }
        let file = self.env.vfs.create(path).map_err(|error| Error::io("create the trace", path, error))?;
        let mut begun = Open {
            number,
            path: path.to_path_buf(),
            file,
            buffer: format!("{HEADER}\n").into_bytes(),
            _charge: charge,
            operations: 0,
            bytes: 0,
            changes: 0,
            keyspace: KeyspaceId::DEFAULT,
            failure: None,
        };
        // Writes the header at once, so that an unwritable file is an error of this call.
        begun.write_if(0);
        if let Some(error) = begun.failure {
            return Err(error);
        }
        debug_assert!(!self.is_on(), "operations are recorded before there is a recording");
        *open = Some(begun);
        self.is_on.store(true, Ordering::Relaxed);
        Ok(Recording { recorder: Arc::clone(self), number, is_finished: false })
    }
}

fn line_of(op: OpRef<'_>) -> Line<'_> {
    match op {
        OpRef::Put { key, value } => {
            Line::Insert { key: Cow::Borrowed(key), value: Payload::Length(value.len()) }
        }
        // A replay writes values that do not expire.
        OpRef::PutExpiring { key, stored } => {
            let value_bytes = stored.len().saturating_sub(Expiry::STORED_BYTES);
            Line::Insert { key: Cow::Borrowed(key), value: Payload::Length(value_bytes) }
        }
        // A trace tells what is written where; a replay knows no operators.
        OpRef::Merge { key, operand } => {
            Line::Insert { key: Cow::Borrowed(key), value: Payload::Length(operand.len()) }
        }
        OpRef::Delete { key } => Line::Delete { key: Cow::Borrowed(key) },
        OpRef::RangeDelete { start, end } => {
            Line::DeleteUpTo { from: Cow::Borrowed(start), to: end.map(Cow::Borrowed) }
        }
    }
}

/// A trace that is being recorded. Created by [`crate::Db::record_trace`]; it may outlive the
/// handle.
///
/// Dropping it finishes the recording; an error is then only a warning.
#[must_use = "the recording ends when this is dropped"]
pub struct Recording {
    recorder: Arc<TraceRecorder>,
    number: u64,
    is_finished: bool,
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Summary of a finished recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Recorded {
    /// Operations in the trace.
    pub operations: u64,
    /// Length of the file.
    pub bytes: u64,
}

impl Recording {
    /// Ends the recording and makes the file complete and durable.
    ///
    /// # Errors
    /// `NoSpace` or `Io` if the file could not be written, now or earlier. The file is then cut
    /// off, possibly within a line, and lacks the end line.
    pub fn finish(mut self) -> Result<Recorded> {
        self.end()
    }

    fn end(&mut self) -> Result<Recorded> {
        self.is_finished = true;
        let recorder = &self.recorder;
        let mut place = recorder.open.lock();
        recorder.is_on.store(false, Ordering::Relaxed);
        let Some(mut open) = place.take() else { return Err(Error::closed()) };
        assert_eq!(open.number, self.number, "a recording ended another one");
        drop(place);
        Line::End { operations: open.operations }.write(&mut open.buffer);
        open.write_if(0);
        if let Some(failure) = open.failure {
            return Err(failure);
        }
        let failed = |error| Error::io("sync the trace", &open.path, error);
        open.file.sync_all().map_err(failed)?;
        let folder = match open.path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        recorder.env.vfs.sync_dir(folder).map_err(failed)?;
        Ok(Recorded { operations: open.operations, bytes: open.bytes })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.is_finished {
            if let Err(error) = self.end() {
                self.recorder
                    .telemetry
                    .warn(format!("the recording could not be finished: {}", error.chain()));
            }
        }
    }
}

/// Records the parts of the scans of an iterator or cursor, as long as the recording runs.
struct ScanNotes {
    recorder: Arc<TraceRecorder>,
    keyspace: (KeyspaceId, String),
    /// The recording in which the scan began.
    number: u64,
}

impl ScanObserver for ScanNotes {
    fn part(&self, part: ScanPart) {
        let ScanPart { is_forward, from, entries } = part;
        let mut noting = self.recorder.noting();
        if let Some(open) = noting.open() {
            debug_assert!(open.number >= self.number, "a scan began in a later recording than it is in");
            if open.number == self.number {
                let from = Cow::Owned(from);
                let line =
                    if is_forward { Line::Next { from, entries } } else { Line::Previous { from, entries } };
                open.operation(self.keyspace.0, &self.keyspace.1, &line);
            }
        }
    }
}

#[cfg(test)]
mod tests;
