//! Passes events to the listener and to the info log.
//!
//! The listener is code of the user, which may call the database. So it is never called under a
//! lock: events that happen under locks wait, in a queue of their thread, until the thread has
//! released them ([`HeldEvents`]). The events of one thread are delivered in the order in which
//! they happened; two threads may call a listener at the same time.
//!
//! Callbacks for durable writes wait in the same queue ([`call_unlocked`]).
//!
//! A panic in the listener is caught and counted. The info log writes one line per event to the
//! file `LOG`. Each open appends to it; it is rotated at 4 MiB, and three old files are kept.
//! Failures of the info log never fail an operation.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, take};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba_env::{Env, WriteFile, append_all};

use crate::event::{Event, EventListener};
use crate::lock_order;
use crate::ranked::{Ranked, assert_unlocked};
use crate::sync::thread_local;

/// The state of a thread that decides when its events are delivered.
#[derive(Clone, Copy, Default)]
struct State {
    /// Number of [`HeldEvents`].
    holds: u32,
    has_waiting: bool,
    /// Whether it is in a listener.
    is_delivering: bool,
}

type Waiting = VecDeque<Call>;

/// A call of code of the user.
enum Call {
    Event(Arc<Sink>, Event),
    Other(Box<dyn FnOnce() + Send>),
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State { holds: 0, has_waiting: false, is_delivering: false }) };
    /// Calls that were not made yet, oldest first. The queue is never dropped, so
    /// that a database may be closed while a thread ends; when it is empty it has no memory.
    static WAITING: ManuallyDrop<RefCell<Waiting>> = const { ManuallyDrop::new(RefCell::new(VecDeque::new())) };
}

/// Passes events to the listener and the info log.
pub(crate) struct Events {
    sink: Option<Arc<Sink>>,
    log: Option<Ranked<InfoLog>>,
}

struct Sink {
    listener: Arc<dyn EventListener>,
    panics: AtomicU64,
}

impl Events {
    /// Creates the sinks of events; with `log`, also the file `LOG` in `dir`.
    pub fn new(env: &Env, dir: &Path, listener: Option<Arc<dyn EventListener>>, log: bool) -> Self {
        let info_log = || InfoLog { env: env.clone(), dir: dir.to_path_buf(), file: None, bytes: 0 };
        Self {
            sink: listener.map(|listener| Arc::new(Sink { listener, panics: AtomicU64::new(0) })),
            log: log.then(|| Ranked::new(lock_order::INFO_LOG, info_log())),
        }
    }

    /// Writes an event to the info log, and tells the listener now or when this thread holds its
    /// events no longer.
    pub fn emit(&self, event: Event) {
        if let Some(log) = &self.log {
            log.lock().write(&event);
        }
        if let Some(sink) = &self.sink {
            call(Call::Event(Arc::clone(sink), event));
        }
    }

    /// Number of caught panics of the listener.
    #[cfg(test)]
    pub fn listener_panics(&self) -> u64 {
        self.sink.as_ref().map_or(0, |sink| sink.panics.load(Ordering::Relaxed))
    }
}

/// Calls code of the user, now or when this thread holds its events no longer. A panic in it is
/// caught.
pub(crate) fn call_unlocked(body: Box<dyn FnOnce() + Send>) {
    call(Call::Other(body));
}

fn call(next: Call) {
    WAITING.with(|waiting| waiting.borrow_mut().push_back(next));
    let state = State { has_waiting: true, ..STATE.with(Cell::get) };
    STATE.with(|cell| cell.set(state));
    deliver_if_free(state);
}

#[inline]
fn deliver_if_free(state: State) {
    if state.holds == 0 && state.has_waiting && !state.is_delivering {
        deliver(state);
    }
}

/// Tells the listeners what waits. Events that they cause themselves are told after they have
/// returned.
#[cold]
fn deliver(state: State) {
    assert_unlocked("an event is delivered");
    STATE.with(|cell| cell.set(State { is_delivering: true, ..state }));
    while let Some(next) = next_waiting() {
        match next {
            Call::Event(sink, event) => {
                if catch_unwind(AssertUnwindSafe(|| sink.listener.event(&event))).is_err() {
                    sink.panics.fetch_add(1, Ordering::Relaxed);
                }
            }
            Call::Other(body) => {
                let _ = catch_unwind(AssertUnwindSafe(body));
            }
        }
    }
    STATE.with(|cell| cell.set(State::default()));
}

fn next_waiting() -> Option<Call> {
    WAITING.with(|waiting| {
        let mut waiting = waiting.borrow_mut();
        let next = waiting.pop_front();
        if next.is_none() {
            drop(take(&mut *waiting));
        }
        next
    })
}

/// Holds events while this thread has locks: what it emits is delivered when the last of these is
/// dropped. To be made before a lock is taken, so that it is dropped after the lock.
#[must_use = "events are held until this is dropped"]
pub(crate) struct HeldEvents {
    /// It stays on its thread.
    _of_thread: PhantomData<*const ()>,
}

/// Holds the events that this thread emits, in any database, until the result is dropped.
#[inline]
pub(crate) fn hold_events() -> HeldEvents {
    let state = STATE.with(Cell::get);
    STATE.with(|cell| cell.set(State { holds: state.holds + 1, ..state }));
    HeldEvents { _of_thread: PhantomData }
}

impl Drop for HeldEvents {
    #[inline]
    fn drop(&mut self) {
        let before = STATE.with(Cell::get);
        debug_assert!(before.holds > 0, "held events are released more often than held");
        let state = State { holds: before.holds - 1, ..before };
        STATE.with(|cell| cell.set(state));
        deliver_if_free(state);
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

    /// Writes down what it is told.
    #[derive(Default)]
    struct Recorder(std::sync::Mutex<Vec<Event>>);
    impl EventListener for Recorder {
        fn event(&self, event: &Event) {
            self.0.lock().unwrap().push(event.clone());
        }
    }

    fn recorded(env: &Env) -> (Arc<Recorder>, Events) {
        let recorder = Arc::new(Recorder::default());
        let listener = Arc::clone(&recorder) as Arc<dyn EventListener>;
        (recorder, Events::new(env, Path::new("db"), Some(listener), false))
    }

    #[test]
    fn held_events_of_two_databases_are_told_in_order_when_the_last_hold_ends() {
        let env = Env::deterministic(Arc::new(shamba_env::MemFs::new()), 1);
        let ((told, one), (told_other, other)) = (recorded(&env), recorded(&env));
        let warning = |text: &str| Event::Warning(text.to_owned());
        let (outer, inner) = (hold_events(), hold_events());
        one.emit(warning("a"));
        other.emit(warning("b"));
        one.emit(warning("c"));
        drop(outer);
        assert!(told.0.lock().unwrap().is_empty(), "told while events are held");
        drop(inner);
        assert_eq!(*told.0.lock().unwrap(), [warning("a"), warning("c")]);
        assert_eq!(*told_other.0.lock().unwrap(), [warning("b")]);
    }

    /// A thread that holds its events keeps no other thread from telling its own.
    #[test]
    fn a_thread_tells_its_own_events_before_its_call_returns() {
        let env = Env::deterministic(Arc::new(shamba_env::MemFs::new()), 1);
        let (told, events) = recorded(&env);
        let _held = hold_events();
        events.emit(Event::Closed);
        let other = || {
            events.emit(Event::Warning("other".to_owned()));
            told.0.lock().unwrap().clone()
        };
        let seen = std::thread::scope(|scope| scope.spawn(other).join().unwrap());
        assert_eq!(seen, [Event::Warning("other".to_owned())]);
    }

    /// Emits an event as its thread ends.
    struct LastWords(std::cell::OnceCell<Events>);
    impl Drop for LastWords {
        fn drop(&mut self) {
            let _held = hold_events();
            self.0.take().unwrap().emit(Event::Closed);
        }
    }

    #[test]
    fn a_database_may_be_closed_while_a_thread_ends() {
        thread_local! { static LAST: LastWords = const { LastWords(std::cell::OnceCell::new()) }; }
        let env = Env::deterministic(Arc::new(shamba_env::MemFs::new()), 1);
        let (told, events) = recorded(&env);
        std::thread::spawn(move || {
            LAST.with(|last| assert!(last.0.set(events).is_ok()));
        })
        .join()
        .unwrap();
        assert_eq!(*told.0.lock().unwrap(), [Event::Closed]);
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
