//! Passes events to the listener and to the info log.
//!
//! The listener is code of the user, which may call the database. So it is never called under a
//! lock: events that happen under locks wait until the thread has released them ([`HeldEvents`]).
//! They are delivered in the order in which they happened.
//!
//! A panic in the listener is caught and counted. The info log writes one line per event to the
//! file `LOG`. Each open appends to it; it is rotated at 4 MiB, and three old files are kept.
//! Failures of the info log never fail an operation.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use shamba_env::{Env, WriteFile, append_all};

use crate::event::{Event, EventListener};
use crate::lock_order;
use crate::ranked::{Ranked, assert_unlocked};
use crate::sync::thread_local;

thread_local! {
    /// Number of [`HeldEvents`] of this thread.
    static HOLDS: Cell<usize> = const { Cell::new(0) };
    /// Address of the [`Events`] whose listener this thread is in; 0 if there is none.
    static DELIVERS: Cell<usize> = const { Cell::new(0) };
}

/// Passes events to the listener and the info log.
pub(crate) struct Events {
    listener: Option<Arc<dyn EventListener>>,
    /// Events that the listener has not been told yet, oldest first.
    waiting: Ranked<VecDeque<Event>>,
    /// Whether there may be any, read without the lock.
    has_waiting: AtomicBool,
    log: Option<Ranked<InfoLog>>,
    listener_panics: AtomicU64,
}

impl Events {
    /// Creates the sinks of events; with `log`, also the file `LOG` in `dir`.
    pub fn new(env: &Env, dir: &Path, listener: Option<Arc<dyn EventListener>>, log: bool) -> Self {
        let info_log = || InfoLog { env: env.clone(), dir: dir.to_path_buf(), file: None, bytes: 0 };
        Self {
            listener,
            waiting: Ranked::new(lock_order::EVENTS, VecDeque::new()),
            has_waiting: AtomicBool::new(false),
            log: log.then(|| Ranked::new(lock_order::INFO_LOG, info_log())),
            listener_panics: AtomicU64::new(0),
        }
    }

    /// Writes an event to the info log, and tells the listener now or when this thread holds its
    /// events no longer.
    pub fn emit(&self, event: Event) {
        if let Some(log) = &self.log {
            log.lock().write(&event);
        }
        if self.listener.is_some() {
            let mut waiting = self.waiting.lock();
            waiting.push_back(event);
            self.has_waiting.store(true, Ordering::Relaxed);
        }
        if HOLDS.with(Cell::get) == 0 {
            assert_unlocked("an event is delivered");
            self.deliver();
        }
    }

    /// Holds the events that this thread emits, until the result is dropped.
    #[inline]
    pub fn hold(&self) -> HeldEvents<'_> {
        HOLDS.with(|holds| holds.set(holds.get() + 1));
        HeldEvents(self)
    }

    /// Tells the listener what waits. Events that it causes itself are told after it has returned.
    #[cold]
    fn deliver(&self) {
        let Some(listener) = &self.listener else { return };
        let own = std::ptr::from_ref(self).addr();
        if DELIVERS.with(Cell::get) == own {
            return;
        }
        let before = DELIVERS.with(|delivers| delivers.replace(own));
        while let Some(event) = self.next_waiting() {
            if catch_unwind(AssertUnwindSafe(|| listener.event(&event))).is_err() {
                self.listener_panics.fetch_add(1, Ordering::Relaxed);
            }
        }
        DELIVERS.with(|delivers| delivers.set(before));
    }

    fn next_waiting(&self) -> Option<Event> {
        let mut waiting = self.waiting.lock();
        let event = waiting.pop_front();
        self.has_waiting.store(!waiting.is_empty(), Ordering::Relaxed);
        event
    }

    /// Number of caught panics of the listener.
    #[cfg(test)]
    pub fn listener_panics(&self) -> u64 {
        self.listener_panics.load(Ordering::Relaxed)
    }
}

/// Holds events while this thread has locks: what it emits is delivered when the last of these is
/// dropped. To be made before a lock is taken, so that it is dropped after the lock.
#[must_use = "events are held until this is dropped"]
pub(crate) struct HeldEvents<'a>(&'a Events);

impl Drop for HeldEvents<'_> {
    #[inline]
    fn drop(&mut self) {
        let holds = HOLDS.with(Cell::get);
        debug_assert!(holds > 0, "held events are released more often than held");
        HOLDS.with(|count| count.set(holds - 1));
        if holds == 1 && self.0.has_waiting.load(Ordering::Relaxed) {
            assert_unlocked("held events are delivered");
            self.0.deliver();
        }
    }
}

/// Size at which the info log rotates.
const INFO_LOG_BYTES: u64 = 4 << 20;
/// `LOG.1` (newest) to `LOG.3`.
const OLD_INFO_LOGS: u32 = 3;

struct InfoLog {
    env: Env,
    dir: PathBuf,
    file: Option<Box<dyn WriteFile>>,
    bytes: u64,
}

impl InfoLog {
    fn write(&mut self, event: &Event) {
        if self.file.is_none() {
            self.open();
        }
        if self.bytes > INFO_LOG_BYTES {
            self.rotate();
        }
        let Some(file) = &mut self.file else { return };
        let line = format!("{} {event}\n", self.env.clock.unix_ms());
        self.bytes += line.len() as u64;
        if append_all(file.as_mut(), line.as_bytes()).is_err() {
            // Best effort: a full disk must not fail the operation that the event reports.
            self.file = None;
            self.bytes = 0;
        }
    }

    /// Opens the file left by an earlier open for appending, or creates it.
    fn open(&mut self) {
        let path = self.dir.join("LOG");
        self.bytes = self.env.vfs.open_read(&path).and_then(|file| file.len()).unwrap_or(0);
        let appended = self.env.vfs.open_append(&path);
        self.file = appended.or_else(|_| self.env.vfs.create(&path)).ok();
    }

    fn rotate(&mut self) {
        let name = |n: u32| if n == 0 { self.dir.join("LOG") } else { self.dir.join(format!("LOG.{n}")) };
        for n in (0..OLD_INFO_LOGS).rev() {
            if self.env.vfs.exists(&name(n)).unwrap_or(false) {
                let _ = self.env.vfs.rename(&name(n), &name(n + 1));
            }
        }
        self.file = self.env.vfs.create(&name(0)).ok();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Panics;
    impl EventListener for Panics {
        fn event(&self, _: &Event) {
            panic!("a user's bug");
        }
    }

    #[test]
    fn a_panicking_listener_is_contained_and_counted() {
        let env = Env::deterministic(Arc::new(shamba_env::MemFs::new()), 1);
        let events = Events::new(&env, Path::new("db"), Some(Arc::new(Panics)), false);
        events.emit(Event::Closed);
        events.emit(Event::Closed);
        assert_eq!(events.listener_panics(), 2);
    }

    fn names(env: &Env, dir: &Path) -> Vec<String> {
        env.vfs.list(dir).unwrap().into_iter().map(|entry| entry.name).collect()
    }

    #[test]
    fn an_open_goes_on_with_the_info_log() {
        let env = Env::deterministic(Arc::new(shamba_env::MemFs::new()), 1);
        let dir = Path::new("db");
        env.vfs.create_dir_all(dir).unwrap();
        for _ in 0..6 {
            Events::new(&env, dir, None, true).emit(Event::Closed);
        }
        assert_eq!(names(&env, dir), ["LOG"]);
        let text = shamba_env::read_file(env.vfs.as_ref(), &dir.join("LOG")).unwrap();
        assert_eq!(text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count(), 6);
    }

    #[test]
    fn a_long_info_log_rotates_and_three_old_ones_stay() {
        let env = Env::deterministic(Arc::new(shamba_env::MemFs::new()), 1);
        let dir = Path::new("db");
        env.vfs.create_dir_all(dir).unwrap();
        let long = Event::Warning("x".repeat(INFO_LOG_BYTES as usize));
        for _ in 0..6 {
            Events::new(&env, dir, None, true).emit(long.clone());
        }
        assert_eq!(names(&env, dir), ["LOG", "LOG.1", "LOG.2", "LOG.3"]);
    }
}
