//! Rotation: seals the active memtables and the log that holds their entries, and creates new ones.
//!
//! The memtables of all keyspaces are sealed together, so that a log belongs to exactly one
//! generation of memtables. Flushing the generation makes the log obsolete, and no keyspace's flush
//! can make half of a batch durable. The new log records how the old one ended. The old log is
//! synced before the new one is, and before its generation's flush is installed.
//!
//! A log whose append failed is sealed at its last good record. After a lack of space the next
//! write creates a new log, so writes resume without a reopen. Any other failure turns writes off
//! until a reopen.

use std::sync::{Arc, Weak};

use shamba_table::{Charge, LedgerPart};

use crate::catalog::KeyspaceCore;
use crate::catalog::LogFile;
use crate::core::{Core, Generation, Writing};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::metrics::WorkCounters;
use crate::sync::Mutex;
use crate::write::side::SideFile;
use shamba_env::lock;
use shamba_key::KeyspaceId;
use shamba_log::wal::WalWriter;
use shamba_memtable::{ChunkedMemtable, Memtable};

/// The active memtable of each keyspace, for the commit path.
#[derive(Default)]
pub(crate) struct ActiveMemtables {
    /// In the order of keyspace ids.
    by_keyspace: Vec<(KeyspaceId, Arc<dyn Memtable>)>,
}

impl ActiveMemtables {
    /// The memtable of a keyspace; `None` after the keyspace was dropped.
    pub fn get(&self, keyspace: KeyspaceId) -> Option<&dyn Memtable> {
        let (id, first) = self.by_keyspace.first()?;
        if *id == keyspace {
            return Some(first.as_ref()); // The default keyspace, most of the time.
        }
        let at = self.by_keyspace.binary_search_by_key(&keyspace, |(id, _)| *id).ok()?;
        self.by_keyspace.get(at).map(|(_, memtable)| memtable.as_ref())
    }

    /// Bytes in all of them.
    pub fn bytes(&self) -> u64 {
        self.by_keyspace.iter().map(|(_, memtable)| memtable.bytes()).sum()
    }

    /// Whether one of them is near the maximum that a memtable can address, whatever the write
    /// buffer.
    pub fn is_full(&self) -> bool {
        self.by_keyspace.iter().any(|(_, memtable)| memtable.is_full())
    }
}

impl Core {
    /// The memtables that take writes now. Code that changes them holds the lock of
    /// [`Core::writing`] and stores the result of this in [`Writing::active`].
    pub(crate) fn active_memtables(&self) -> ActiveMemtables {
        let active = |keyspace: &Arc<KeyspaceCore>| {
            keyspace.load().memtables.first().map(|memtable| (keyspace.id, Arc::clone(memtable)))
        };
        ActiveMemtables { by_keyspace: self.catalog.keyspaces().values().filter_map(active).collect() }
    }

    /// Whether the active memtables or their log are full.
    pub(crate) fn is_rotation_due(&self, writing: &Writing) -> bool {
        let log_bytes = writing.wal.as_ref().map_or(0, WalWriter::offset);
        let log_bytes = log_bytes.max(writing.side.as_ref().map_or(0, SideFile::bytes));
        writing.active.bytes() >= self.memtable_limit_bytes()
            || log_bytes >= self.settings.wal_bytes
            || writing.active.is_full()
    }

    /// Creates a log if there is none, as after one was sealed for lack of space.
    pub(crate) fn ensure_log(&self, writing: &mut Writing) -> Result<()> {
        if writing.wal.is_none() {
            self.rotate(writing)?;
        }
        Ok(())
    }

    /// Seals the active memtables and their log, and creates new ones. Nothing changes on failure.
    pub(crate) fn rotate(&self, writing: &mut Writing) -> Result<()> {
        if let Some(wal) = &mut writing.wal {
            if let Err(error) = wal.flush() {
                // Buffered records could not be written. Their entries are already visible, as
                // `Buffered` allows.
                return Err(self.log_append_failed(writing, error.into()));
            }
        }
        let mut next_log = self.catalog.new_log_no();
        if !self.settings.no_wal {
            let predecessor = match &writing.wal {
                Some(wal) => Some(wal.predecessor()),
                None => writing.predecessor,
            };
            let wal = WalWriter::create(&self.env, &self.dir, next_log, predecessor, writing.last_seq)?;
            self.telemetry.emit(&Event::LogRotated { log: next_log.0 });
            writing.predecessor = None;
            if let Some(old) = writing.wal.replace(wal) {
                seal(writing, old);
            }
            // Logs that their generation's flush has synced leave the list.
            writing.sealed.retain(|sealed| {
                let wal = lock(sealed);
                wal.synced() < wal.flushed()
            });
        } else {
            // Without a log there is always one empty log file: the manifest must find it.
            next_log = self.catalog.with_state(|state| state.map_or(next_log, |state| state.first_log));
        }
        let log = writing.sealed.back().cloned();
        let mut members = Vec::new();
        let mut bytes = 0;
        for keyspace in self.catalog.keyspaces().values() {
            let Some(active) = keyspace.load().memtables.first().cloned() else { continue };
            if active.is_empty() {
                continue;
            }
            bytes += active.bytes();
            members.push((Arc::clone(keyspace), active));
            keyspace.publish(|view| {
                let fresh: Arc<dyn Memtable> = Arc::new(ChunkedMemtable::new(self.settings.memtable_index));
                let memtables = std::iter::once(fresh).chain(view.memtables.iter().cloned()).collect();
                view.next(memtables, Arc::clone(&view.version))
            });
        }
        writing.active = self.active_memtables();
        if let Some(side) = writing.side.take() {
            writing.sealed_files.push(side.into_file());
        }
        let log_files = std::mem::take(&mut writing.sealed_files);
        let fresh = Charge::new(&self.ledger, LedgerPart::Memtables, 0);
        let mut charge = std::mem::replace(&mut writing.memtable_charge, fresh);
        charge.resize(bytes); // From here on it only waits.
        let last_seq = writing.last_seq;
        let generation = Generation { log, log_files, next_log, members, last_seq, bytes, _charge: charge };
        lock(&self.background.state).immutables.push_back(Arc::new(generation));
        self.background.room.changed();
        self.background.wake.notify_all();
        Ok(())
    }

    /// Handles a failed append: seals the log at its last good record, and returns the error for
    /// the writers.
    pub(crate) fn log_append_failed(&self, writing: &mut Writing, error: Error) -> Error {
        let followable = writing.wal.as_ref().is_some_and(WalWriter::may_be_followed);
        if error.kind() == ErrorKind::NoSpace && followable {
            // The file ends at its last good record, so the next write may create a log after it.
            if let Some(wal) = writing.wal.take() {
                let lost = wal.last_seq() < writing.last_seq;
                writing.predecessor = Some(wal.predecessor());
                seal(writing, wal);
                if lost {
                    // Acknowledged `Buffered` writes never reached the log: a later log would leave
                    // a hole.
                    self.lifecycle.fail(&error);
                }
            }
        } else {
            self.lifecycle.fail(&error);
        }
        error
    }

    /// Reports a failed rotation after an acknowledged write. The memtables stay active, and the
    /// next write tries again.
    pub(crate) fn rotation_failed(&self, error: &Error) {
        WorkCounters::add(&self.telemetry.work().background_errors, 1);
        self.telemetry.emit(&Event::BackgroundError(format!("rotating the log: {}", error.chain())));
    }
}

/// Puts a log that takes no more records where its generation's flush and the next sync find it.
fn seal(writing: &mut Writing, wal: WalWriter) {
    let values = writing.values.take().map_or_else(Weak::new, |values| Arc::downgrade(&values));
    writing.sealed_files.push(LogFile { path: wal.path().to_path_buf(), values });
    writing.sealed.push_back(Arc::new(Mutex::new(wal)));
}
