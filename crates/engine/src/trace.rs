//! Traces: what a database was asked, in the order in which it came, as a text file that can be carried out again.
//!
//! [`Db::record_trace`] begins a [`Recording`]; until it ends, every operation of every handle that did not
//! fail becomes a [`Line`], with its key and the length of its value. One thing is tested on the way of an operation:
//! whether there is a recording. A file that cannot be written ends the recording, never an operation.
//!
//! Writes are noted between their log and their readers, under the recording's lock, which is held until they are visible;
//! so no read that sees a write is noted before it. What a lookup found is noted only where nothing was written between
//! its beginning and its note, and it read no snapshot: then it is what a database finds that carries the trace out line by line.
//! Batches are their operations, `multi_get` its lookups; a scan is noted when it ends or goes elsewhere, with the entries that it
//! read until then. Flushes, merges, `explain` and checks leave no line. Ingested entries are not in it: a remark says how
//! many there were.
//!
//! Lock order: the recording's lock is taken last, inside that of `Core::writing` where that is held.
//!
//! Not here: what a line says ([`Line`]), reading a file of them and carrying it out (crate `shamba-workload`).

pub(crate) mod line;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use shamba_env::{WriteFile, append_all};
use shamba_table::{Charge, LedgerPart};

pub use self::line::{HEADER, Line, Payload};

use crate::core::{Core, KeyspaceCore};
use crate::db::Db;
use crate::error::{Error, Result};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard};
use shamba_env::lock;
use shamba_key::KeyspaceId;
use shamba_log::wal::OpRef;
use shamba_tree::iter::notes::{ScanObserver, ScanPart};

/// The file is written once so much has gathered.
const BUFFER_BYTES: usize = 64 << 10;

/// The place of a database's recording, if it has one.
#[derive(Default)]
pub(crate) struct Recorder {
    is_on: AtomicBool,
    open: Mutex<Option<Open>>,
}

/// A recording that has not been finished; it may have ended by a failure.
struct Open {
    /// Tells it from others of this database.
    number: u64,
    path: PathBuf,
    file: Box<dyn WriteFile>,
    buffer: Vec<u8>,
    _charge: Charge,
    operations: u64,
    bytes: u64,
    /// How often the content has changed since it began.
    changes: u64,
    /// The keyspace that the next line is about.
    keyspace: KeyspaceId,
    failure: Option<Error>,
}

/// A moment in a recording, at which a lookup begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    number: u64,
    changes: u64,
}

impl Open {
    fn moment(&self) -> Moment {
        Moment { number: self.number, changes: self.changes }
    }

    /// Notes an operation on a keyspace.
    fn operation(&mut self, id: KeyspaceId, name: &str, line: &Line<'_>) {
        if id != self.keyspace {
            Line::Keyspace { name: Cow::Borrowed(name) }.write(&mut self.buffer);
            self.keyspace = id;
        }
        self.operations += 1;
        line.write(&mut self.buffer);
        self.write_if(BUFFER_BYTES);
    }

    /// Writes what has gathered, if that is `least_bytes`.
    fn write_if(&mut self, least_bytes: usize) {
        if self.failure.is_none() && self.buffer.len() >= least_bytes {
            match append_all(self.file.as_mut(), &self.buffer) {
                Ok(()) => self.bytes += self.buffer.len() as u64,
                Err(error) => self.failure = Some(Error::io("write the trace", &self.path, error)),
            }
        }
        if self.failure.is_some() || self.buffer.len() >= least_bytes {
            self.buffer.clear();
        }
    }
}

impl Recorder {
    /// Whether operations are to be noted.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Where a lookup begins.
    pub fn moment(&self) -> Option<Moment> {
        lock(&self.open).as_ref().map(Open::moment)
    }
}

/// The recording while somebody notes something. Nothing else is noted before this goes.
pub(crate) struct Noting<'a> {
    core: &'a Core,
    open: Option<MutexGuard<'a, Option<Open>>>,
}

impl Noting<'_> {
    fn open(&mut self) -> Option<&mut Open> {
        self.open.as_mut()?.as_mut()
    }

    /// Notes a write to a keyspace that is there; to a dropped one it goes nowhere.
    pub fn write(&mut self, id: KeyspaceId, op: OpRef<'_>) {
        let keyspaces = self.core.keyspaces.load();
        if let Some(keyspace) = keyspaces.get(&id) {
            if let Some(open) = self.open() {
                open.changes += 1;
                open.operation(id, &keyspace.name, &line_of(op));
            }
        }
    }

    /// Notes that the keyspace is dropped.
    pub fn gone(&mut self, keyspace: &KeyspaceCore) {
        if let Some(open) = self.open() {
            open.changes += 1;
            open.operation(open.keyspace, "", &Line::Gone { name: Cow::Borrowed(&keyspace.name) });
            // Whatever comes next names its keyspace, also one that has the number of this.
            open.keyspace = KeyspaceId(u32::MAX);
        }
    }

    /// Remarks that so many entries came past the trace.
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
        let was_on = self.core.recorder.is_on.swap(false, Ordering::Relaxed);
        // A listener may want to end the recording.
        self.open = None;
        if was_on {
            self.core.warn(format!("the recording has ended: {}", failure.chain()));
        }
    }
}

impl Core {
    /// The recording, to note something in it.
    #[cold]
    pub(crate) fn noting(&self) -> Noting<'_> {
        Noting { core: self, open: Some(lock(&self.recorder.open)) }
    }

    /// Notes lookups that began at `asked`, or at a snapshot.
    pub(crate) fn note_lookups<'k>(
        &self,
        keyspace: &KeyspaceCore,
        asked: Option<Moment>,
        lookups: impl Iterator<Item = (&'k [u8], bool)>,
    ) {
        let mut noting = self.noting();
        let Some(open) = noting.open() else { return };
        let is_known = asked == Some(open.moment());
        for (key, found) in lookups {
            let line = Line::Get { key: Cow::Borrowed(key), found: is_known.then_some(found) };
            open.operation(keyspace.id, &keyspace.name, &line);
        }
    }

    /// Where a scan that begins now is to be noted.
    #[cold]
    pub(crate) fn scan_notes(
        self: &Arc<Self>,
        keyspace: &Arc<KeyspaceCore>,
    ) -> Option<Arc<dyn ScanObserver>> {
        let number = self.recorder.moment()?.number;
        Some(Arc::new(ScanNotes { core: Arc::downgrade(self), keyspace: Arc::clone(keyspace), number }))
    }

    /// Begins a recording.
    ///
    /// # Errors
    /// See [`Db::record_trace`].
    pub(crate) fn record_trace(self: &Arc<Self>, path: &Path) -> Result<Recording> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        let mut charge = Charge::new(&self.ledger, LedgerPart::Logs, 0);
        self.charge_memory(&mut charge, BUFFER_BYTES as u64);
        // Nobody writes meanwhile: every write is before the recording and seen by all of its reads, or in it.
        let _writing = lock(&self.writing);
        let mut open = lock(&self.recorder.open);
        if let Some(other) = &*open {
            let path = other.path.display();
            return Err(Error::invalid(format!(
                "a trace is being recorded already, to {path}; finish it first"
            )));
        }
        let file = self.env.vfs.create(path).map_err(|error| Error::io("create the trace", path, error))?;
        let number = self.new_id();
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
        // Whoever cannot write at all is told at once.
        begun.write_if(0);
        if let Some(error) = begun.failure {
            return Err(error);
        }
        *open = Some(begun);
        self.recorder.is_on.store(true, Ordering::Relaxed);
        Ok(Recording { core: Arc::clone(self), number, is_finished: false })
    }
}

impl Db {
    /// Begins to write down every operation of every handle, with keys and the lengths of values, in the order in which
    /// they come: a text file that `shamba bench DB replay` carries out again (`docs/formats/trace.md`). It does so until
    /// [`Recording::finish`], or until the file cannot be written: that is a warning, and what `finish` then says,
    /// and no operation fails for it. Operations wait for the file while 64 KiB of it are written.
    ///
    /// Batches and [`Db::multi_get`] are recorded as their parts, scans with the entries that they read, when they end;
    /// what failed, what [`Db::ingest`] adds and scans that began before are not in it.
    ///
    /// # Errors
    /// `Invalid` while a trace of this database is being recorded already; `Io`, `NoSpace`, `ReadOnly`: the file is there already or
    /// cannot be made; `Closed`.
    pub fn record_trace(&self, path: impl AsRef<Path>) -> Result<Recording> {
        self.core().record_trace(path.as_ref())
    }
}

fn line_of(op: OpRef<'_>) -> Line<'_> {
    match op {
        OpRef::Put { key, value } => {
            Line::Insert { key: Cow::Borrowed(key), value: Payload::Length(value.len()) }
        }
        OpRef::Delete { key } => Line::Delete { key: Cow::Borrowed(key) },
        OpRef::RangeDelete { start, end } => {
            Line::DeleteUpTo { from: Cow::Borrowed(start), to: end.map(Cow::Borrowed) }
        }
    }
}

/// A trace that is being recorded. Made by [`Db::record_trace`]; it may outlive the handle.
///
/// Dropped, it is finished as far as that goes; what goes wrong then is a warning.
#[must_use = "the recording ends when this is dropped"]
pub struct Recording {
    core: Arc<Core>,
    number: u64,
    is_finished: bool,
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording").field("number", &self.number).finish_non_exhaustive()
    }
}

/// What was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Recorded {
    /// Operations in the trace.
    pub operations: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

impl Recording {
    /// Ends the recording; the file is whole and durable then.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: why the file could not be written, now or earlier. What it holds then ends somewhere, perhaps within a
    /// line, and has no line that says that nothing is missing.
    pub fn finish(mut self) -> Result<Recorded> {
        self.end()
    }

    fn end(&mut self) -> Result<Recorded> {
        self.is_finished = true;
        let recorder = &self.core.recorder;
        let mut place = lock(&recorder.open);
        recorder.is_on.store(false, Ordering::Relaxed);
        let Some(mut open) = place.take() else { return Err(Error::closed()) };
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
        self.core.env.vfs.sync_dir(folder).map_err(failed)?;
        Ok(Recorded { operations: open.operations, bytes: open.bytes })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.is_finished {
            if let Err(error) = self.end() {
                self.core.warn(format!("the recording could not be finished: {}", error.chain()));
            }
        }
    }
}

/// Records the parts of the scans of an iterator or cursor, if the recording still runs.
pub(crate) struct ScanNotes {
    /// Iterators keep no database alive.
    core: Weak<Core>,
    keyspace: Arc<KeyspaceCore>,
    /// The recording in which the scan began.
    number: u64,
}

impl ScanObserver for ScanNotes {
    fn part(&self, part: ScanPart) {
        let ScanPart { is_forward, from, entries } = part;
        let Some(core) = self.core.upgrade() else { return };
        let mut noting = core.noting();
        if let Some(open) = noting.open() {
            if open.number == self.number {
                let from = Cow::Owned(from);
                let line =
                    if is_forward { Line::Next { from, entries } } else { Line::Previous { from, entries } };
                open.operation(self.keyspace.id, &self.keyspace.name, &line);
            }
        }
    }
}

#[cfg(test)]
mod tests;
