//! A file system that fails on command, over any other.
//!
//! A [`FaultRule`] says which calls it is about, when it strikes and what then happens; [`FaultFs`] asks its rules, in
//! the order in which they were added, before (and for spoilt reads, after) each call. A rule counts only
//! calls on which its effect can show: a short read is about reads, a full disk about calls that take space. So the loop
//! "fail matching call #i, for i from 0, until a run sees no fault" covers every call of a script once.
//!
//! A failed call does not reach the file system below. Copies of a [`FaultFs`] share rules and counts; so do
//! the files opened through it.
//!
//! Not here: what a failed sync leaves on the disk ([`crate::SimFs::fail_sync`]).

mod files;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::clock::{Clock, RealClock};
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::vfs::Vfs;

/// The calls of a file system, as rules and traces name them.
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

/// What happens to a call that a rule strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Any call: the device fails (EIO).
    Eio,
    /// Calls that take space: the disk is full (ENOSPC).
    Enospc,
    /// Calls that take space: the quota is used up (EDQUOT).
    Edquot,
    /// Reads and appends: interrupted (EINTR), to be tried again.
    Eintr,
    /// Calls that open something: no descriptor left (EMFILE).
    Emfile,
    /// Reads of 2 bytes and more: half of them come.
    ShortRead,
    /// Appends of 2 bytes and more: half of them are taken.
    ShortWrite,
    /// Any call: takes so many microseconds longer, then goes on.
    LatencyUs(u64),
    /// Reads: one bit of what comes is flipped.
    FlipBitOnRead,
    /// Reads: what comes is from another place of the file.
    MisdirectedRead,
    /// Syncs: they say that they did, and did not. Nothing can stand that: it shows that a test would notice a
    /// sync that was forgotten.
    LieAboutSync,
    /// Opening for direct reads: the file is opened for usual ones.
    NoDirectReads,
}

/// When a rule strikes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// At the so-manieth matching call since the rule was added (0-based).
    Nth(u64),
    /// At each matching call with this probability.
    Probability(f64),
}

/// How long a rule goes on after it struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Persistence {
    /// Only the calls that [`When`] names.
    Once,
    /// Every matching call from the first that [`When`] names.
    Sticky,
}

/// Which calls fail, when and how.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultRule {
    /// Calls of these kinds; of any when empty.
    pub kinds: Vec<OpKind>,
    /// Calls on paths that hold this text (a rename: either path).
    pub path_contains: Option<String>,
    /// Which of them.
    pub when: When,
    /// What happens.
    pub effect: Effect,
    /// Whether it goes on.
    pub persistence: Persistence,
}

impl FaultRule {
    /// The `nth` call of any kind and path on which `effect` can show, once.
    pub fn nth(nth: u64, effect: Effect) -> Self {
        Self {
            kinds: Vec::new(),
            path_contains: None,
            when: When::Nth(nth),
            effect,
            persistence: Persistence::Once,
        }
    }

    /// A storm: each call on which `effect` can show, with this probability.
    pub fn storm(probability: f64, effect: Effect) -> Self {
        Self { when: When::Probability(probability), ..Self::nth(0, effect) }
    }

    /// The same, only for these kinds.
    pub fn on(mut self, kinds: &[OpKind]) -> Self {
        self.kinds = kinds.to_vec();
        self
    }

    /// The same, only for paths that hold this text.
    pub fn at_path(mut self, contains: &str) -> Self {
        self.path_contains = Some(contains.to_owned());
        self
    }

    /// The same, going on from its first strike.
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
            // A place to go astray to is more than the byte itself.
            Effect::MisdirectedRead => call.kind == Read && call.bytes > 1,
            Effect::LieAboutSync => matches!(call.kind, SyncData | SyncAll | SyncDir),
            Effect::NoDirectReads => call.kind == OpenRead,
        }
    }

    /// The error number that the call fails with, for an effect that makes it fail.
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

/// One call, as rules see it.
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
    /// The first rule that strikes decides; every rule counts the call.
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

/// A file system that fails as its rules say. Copies share them.
#[derive(Clone, Debug)]
pub struct FaultFs {
    inner: Arc<dyn Vfs>,
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<FaultState>>,
}

impl FaultFs {
    /// No rules yet. The seed fixes what probabilities and flipped bits come out as. Latency is slept on the
    /// real clock.
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

    /// Removes all rules: from now on nothing fails.
    pub fn clear_rules(&self) {
        self.state().rules.clear();
    }

    /// Calls so far, failed ones too.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Of each rule, in the order in which they were added, whether it has struck.
    pub fn rules_struck(&self) -> Vec<bool> {
        self.state().rules.iter().map(|active| active.struck).collect()
    }

    /// Calls so far that a rule struck.
    pub fn faults_injected(&self) -> u64 {
        self.state().faults_injected
    }

    /// From now on keeps a list of all calls, from an empty one.
    pub fn start_trace(&self) {
        self.state().trace = Some(Vec::new());
    }

    /// Ends the list and gives it: kind and (first) path of each call, in order.
    pub fn take_trace(&self) -> Vec<(OpKind, PathBuf)> {
        self.state().trace.take().unwrap_or_default()
    }

    /// Counts the call and applies what can be applied before it: errors and latency. What is left is an
    /// effect on a read or append.
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

    /// A random number below `end`, for the place of a flipped bit.
    fn random_below(&self, end: usize) -> usize {
        self.state().rng.usize(..end.max(1))
    }
}
