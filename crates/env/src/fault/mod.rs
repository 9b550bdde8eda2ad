//! A file system that fails on command, over any other.
//!
//! A [`FaultRule`] says which calls it applies to, when it applies, and with which effect.
//! [`FaultFs`] consults its rules, in the order in which they were added, before each call (and for
//! corrupted reads, after it). A rule counts only calls on which its effect is possible: a short
//! read needs a read, a full disk a call that takes space. So the loop "fail matching call #i, for
//! i from 0, until a run sees no fault" covers every call of a script once.
//!
//! A failed call does not reach the file system below. Copies of a [`FaultFs`] share rules and
//! counts, as do the files opened through it.
//!
//! Not here: the state of the disk after a failed sync ([`crate::SimFs::fail_sync`]).

mod files;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::clock::{Clock, RealClock};
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::vfs::Vfs;

/// Kinds of file system calls, in rules and traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpKind {
    /// [`Vfs::open_read`].
    OpenRead,
    /// [`Vfs::create`].
    Create,
    /// [`Vfs::open_append`].
    OpenAppend,
    /// [`crate::RandomFile::read_at`].
    Read,
    /// [`crate::RandomFile::len`].
    Len,
    /// [`crate::WriteFile::append`].
    Append,
    /// [`crate::WriteFile::sync_data`].
    SyncData,
    /// [`crate::WriteFile::sync_all`].
    SyncAll,
    /// [`crate::WriteFile::truncate`].
    Truncate,
    /// [`Vfs::sync_dir`].
    SyncDir,
    /// [`Vfs::rename`].
    Rename,
    /// [`Vfs::unlink`].
    Unlink,
    /// [`Vfs::link`].
    Link,
    /// [`Vfs::create_dir_all`].
    CreateDir,
    /// [`Vfs::remove_dir`].
    RemoveDir,
    /// [`Vfs::list`].
    List,
    /// [`Vfs::exists`].
    Exists,
    /// [`Vfs::lock`].
    Lock,
    /// [`Vfs::disk_free_bytes`].
    DiskFree,
}

/// The effect of a rule on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Any call: the device fails (EIO).
    Eio,
    /// Calls that take space: the disk is full (ENOSPC).
    Enospc,
    /// Calls that take space: the quota is used up (EDQUOT).
    Edquot,
    /// Reads and appends: interrupted (EINTR); the caller has to retry.
    Eintr,
    /// Calls that open something: no descriptor left (EMFILE).
    Emfile,
    /// Reads of 2 bytes or more: half of them are returned.
    ShortRead,
    /// Appends of 2 bytes or more: half of them are written.
    ShortWrite,
    /// Any call: takes this many microseconds longer, then proceeds.
    LatencyUs(u64),
    /// Reads: one bit of the result is flipped.
    FlipBitOnRead,
    /// Reads: the result is from another place of the file.
    MisdirectedRead,
    /// Syncs: they succeed without doing anything. No engine survives this: it shows that a test
    /// would detect a missing sync.
    LieAboutSync,
    /// Opening for direct reads: the file is opened for buffered ones.
    NoDirectReads,
}

/// When a rule applies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// At the matching call with this number (0-based) since the rule was added.
    Nth(u64),
    /// At each matching call with this probability.
    Probability(f64),
}

/// How long a rule applies after its first effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Persistence {
    /// Only the calls that [`When`] selects.
    Once,
    /// Every matching call from the first that [`When`] selects.
    Sticky,
}

/// A rule: the calls that fail, when and how.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultRule {
    /// Calls of these kinds; of any when empty.
    pub kinds: Vec<OpKind>,
    /// Calls on paths that contain this text (a rename: either path).
    pub path_contains: Option<String>,
    /// Which of the matching calls it applies to.
    pub when: When,
    /// The effect on them.
    pub effect: Effect,
    /// Whether it continues after the first.
    pub persistence: Persistence,
}

impl FaultRule {
    /// The `nth` call of any kind and path on which `effect` is possible, once.
    pub fn nth(nth: u64, effect: Effect) -> Self {
        Self {
            kinds: Vec::new(),
            path_contains: None,
            when: When::Nth(nth),
            effect,
            persistence: Persistence::Once,
        }
    }

    /// A storm: each call on which `effect` is possible, with this probability.
    pub fn storm(probability: f64, effect: Effect) -> Self {
        Self { when: When::Probability(probability), ..Self::nth(0, effect) }
    }

    /// The same, only for these kinds.
    pub fn on(mut self, kinds: &[OpKind]) -> Self {
        self.kinds = kinds.to_vec();
        self
    }

    /// The same, only for paths that contain this text.
    pub fn at_path(mut self, contains: &str) -> Self {
        self.path_contains = Some(contains.to_owned());
        self
    }

    /// The same, for all matching calls from its first effect on.
    pub fn sticky(mut self) -> Self {
        self.persistence = Persistence::Sticky;
        self
    }

    fn matches(&self, call: &Call<'_>) -> bool {
        let kind_matches = self.kinds.is_empty() || self.kinds.contains(&call.kind);
        kind_matches && self.effect.can_show(call) && self.path_matches(call)
    }

    fn path_matches(&self, call: &Call<'_>) -> bool {
        let Some(text) = &self.path_contains else { return true };
        let holds = |path: &Path| path.to_string_lossy().contains(text.as_str());
        holds(call.path) || call.to.is_some_and(holds)
    }
}

impl Effect {
    fn can_show(self, call: &Call<'_>) -> bool {
        use OpKind::*;
        match self {
            Effect::Eio | Effect::LatencyUs(_) => true,
            Effect::Enospc | Effect::Edquot => matches!(
                call.kind,
                Create | Append | SyncData | SyncAll | SyncDir | Truncate | Rename | Link | CreateDir | Lock
            ),
            Effect::Eintr => matches!(call.kind, Read | Append),
            Effect::Emfile => matches!(call.kind, OpenRead | Create | OpenAppend | SyncDir | List | Lock),
            Effect::ShortRead => call.kind == Read && call.bytes > 1,
            Effect::ShortWrite => call.kind == Append && call.bytes > 1,
            Effect::FlipBitOnRead => call.kind == Read && call.bytes > 0,
            // A single byte may be returned unchanged: see `misdirect`.
            Effect::MisdirectedRead => call.kind == Read && call.bytes > 1,
            Effect::LieAboutSync => matches!(call.kind, SyncData | SyncAll | SyncDir),
            Effect::NoDirectReads => call.kind == OpenRead,
        }
    }

    /// The error number with which the call fails, for effects that make it fail.
    fn error_number(self) -> Option<i32> {
        match self {
            Effect::Eio => Some(5),
            Effect::Enospc => Some(28),
            Effect::Edquot => Some(122),
            Effect::Eintr => Some(4),
            Effect::Emfile => Some(24),
            Effect::ShortRead
            | Effect::ShortWrite
            | Effect::LatencyUs(_)
            | Effect::FlipBitOnRead
            | Effect::MisdirectedRead
            | Effect::LieAboutSync
            | Effect::NoDirectReads => None,
        }
    }
}

/// One call as input of the rules.
#[derive(Debug)]
struct Call<'a> {
    kind: OpKind,
    path: &'a Path,
    /// The second path, of a rename or link.
    to: Option<&'a Path>,
    /// Bytes asked for, of a read or append.
    bytes: usize,
}

#[derive(Debug)]
struct ActiveRule {
    rule: FaultRule,
    seen: u64,
    struck: bool,
}

#[derive(Debug)]
struct FaultState {
    rules: Vec<ActiveRule>,
    rng: fastrand::Rng,
    calls: u64,
    faults_injected: u64,
    trace: Option<Vec<(OpKind, PathBuf)>>,
}

impl FaultState {
    /// The first rule that applies decides; every rule counts the call.
    fn effect_on(&mut self, call: &Call<'_>) -> Option<Effect> {
        let mut decided = None;
        for active in self.rules.iter_mut().filter(|active| active.rule.matches(call)) {
            let named = match active.rule.when {
                When::Nth(nth) => active.seen == nth,
                When::Probability(probability) => self.rng.f64() < probability,
            };
            active.seen += 1;
            let strikes = named || (active.struck && active.rule.persistence == Persistence::Sticky);
            active.struck |= strikes;
            if strikes && decided.is_none() {
                decided = Some(active.rule.effect);
            }
        }
        self.faults_injected += u64::from(decided.is_some());
        decided
    }
}

/// A file system that fails according to its rules. Copies share them.
#[derive(Clone, Debug)]
pub struct FaultFs {
    inner: Arc<dyn Vfs>,
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<FaultState>>,
}

impl FaultFs {
    /// A file system without rules. The seed determines probabilities and flipped bits. Latency is
    /// slept on the real clock.
    pub fn new(inner: Arc<dyn Vfs>, seed: u64) -> Self {
        Self::with_clock(inner, seed, Arc::new(RealClock::new()))
    }

    /// The same with latency slept on this clock.
    pub fn with_clock(inner: Arc<dyn Vfs>, seed: u64, clock: Arc<dyn Clock>) -> Self {
        let state = FaultState {
            rules: Vec::new(),
            rng: fastrand::Rng::with_seed(seed),
            calls: 0,
            faults_injected: 0,
            trace: None,
        };
        Self { inner, clock, state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, FaultState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a rule; it counts calls from now on.
    pub fn add_rule(&self, rule: FaultRule) {
        self.state().rules.push(ActiveRule { rule, seen: 0, struck: false });
    }

    /// Removes all rules: no later call fails.
    pub fn clear_rules(&self) {
        self.state().rules.clear();
    }

    /// Number of calls so far, including failed ones.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// For each rule, in the order in which they were added, whether it has had an effect.
    pub fn rules_struck(&self) -> Vec<bool> {
        self.state().rules.iter().map(|active| active.struck).collect()
    }

    /// Number of calls so far on which a rule had an effect.
    pub fn faults_injected(&self) -> u64 {
        self.state().faults_injected
    }

    /// Starts a trace of all calls, initially empty.
    pub fn start_trace(&self) {
        self.state().trace = Some(Vec::new());
    }

    /// Ends the trace and returns it: kind and (first) path of each call, in order.
    pub fn take_trace(&self) -> Vec<(OpKind, PathBuf)> {
        self.state().trace.take().unwrap_or_default()
    }

    /// Counts the call and applies the effects that come before it: errors and latency. Returns the
    /// remaining effect on a read, append, sync or open.
    fn before(&self, call: &Call<'_>) -> io::Result<Option<Effect>> {
        let effect = {
            let mut state = self.state();
            state.calls += 1;
            if let Some(trace) = &mut state.trace {
                trace.push((call.kind, call.path.to_owned()));
            }
            state.effect_on(call)
        };
        match effect {
            Some(Effect::LatencyUs(us)) => {
                self.clock.sleep_us(us);
                Ok(None)
            }
            Some(effect) => match effect.error_number() {
                Some(number) => Err(io::Error::from_raw_os_error(number)),
                None => Ok(Some(effect)),
            },
            None => Ok(None),
        }
    }

    /// A random number below `end`, for the position of a flipped bit.
    fn random_below(&self, end: usize) -> usize {
        self.state().rng.usize(..end.max(1))
    }
}
