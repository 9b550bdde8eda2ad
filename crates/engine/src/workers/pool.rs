//! The members, threads and turns of a pool.

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use shamba_env::{JoinHandle, Spawner};

use super::{Lane, Next, Steps};
use crate::error::{Error, ErrorKind, Result};
use crate::lock_order;
use crate::ranked::{Ranked, RankedGuard};
use crate::sync::Condvar;
use crate::sync::thread::{ThreadId, current_id};
use crate::sync::time::now_us;

/// Number of lanes.
const LANES: usize = Lane::ALL.len();
/// The longest wait of a thread without work.
const IDLE: Duration = Duration::from_millis(500);

/// The threads of one or of several databases.
pub(super) struct Pool {
    state: Ranked<State>,
    /// Signalled when a member of the lane is due, or the last one has left.
    work: [Condvar; LANES],
    /// Signalled when a step or a thread has ended.
    ended: Condvar,
    /// Whether there are more compaction threads when a member can use more.
    grows: bool,
}

struct State {
    members: Vec<Member>,
    members_so_far: u64,
    compaction_threads: usize,
    /// Running threads of each lane.
    threads: [usize; LANES],
    handles: Vec<JoinHandle>,
    /// Per lane: position of the member whose turn is next.
    turn: [usize; LANES],
    /// Threads in steps, each with the member.
    in_steps: Vec<(ThreadId, u64)>,
}

struct Member {
    id: u64,
    steps: Arc<dyn Steps>,
    is_leaving: bool,
    lanes: [Visits; LANES],
}

/// A member in a lane.
#[derive(Clone, Copy)]
struct Visits {
    /// Whether it may have work, whatever its time.
    is_due: bool,
    /// Number of times that it was woken: a step that found nothing does not hide a later wake-up.
    wakes: u64,
    running: usize,
    limit: usize,
    /// Time at which it is due without being woken.
    due_us: u64,
    has_panicked: bool,
}

impl Visits {
    fn new(limit: usize) -> Self {
        Self { is_due: true, wakes: 0, running: 0, limit, due_us: 0, has_panicked: false }
    }

    /// Time from which a thread may step for it; `None` if it depends on the end of another step.
    fn step_from_us(&self) -> Option<u64> {
        let can_step = self.running < self.limit && !self.has_panicked;
        can_step.then_some(if self.is_due { 0 } else { self.due_us })
    }
}

/// A step that a thread is about to do.
struct Turn {
    id: u64,
    steps: Arc<dyn Steps>,
    wakes: u64,
}

impl Pool {
    pub fn new(compaction_threads: usize, grows: bool) -> Self {
        assert!(compaction_threads > 0, "a pool has no thread for compactions");
        let state = State {
            members: Vec::new(),
            members_so_far: 0,
            compaction_threads,
            threads: [0; LANES],
            handles: Vec::new(),
            turn: [0; LANES],
            in_steps: Vec::new(),
        };
        Self {
            state: Ranked::new(lock_order::POOL, state),
            work: Default::default(),
            ended: Condvar::new(),
            grows,
        }
    }

    pub fn compaction_threads(&self) -> usize {
        self.state.lock().compaction_threads
    }

    /// See [`super::Workers::join`].
    pub fn join(pool: &Arc<Self>, spawner: &dyn Spawner, steps: Arc<dyn Steps>) -> Result<Membership> {
        let limits = Lane::ALL.map(|lane| steps.limit(lane));
        let mut state = pool.state.lock();
        state.members_so_far += 1;
        let id = state.members_so_far;
        if pool.grows {
            state.compaction_threads = state.compaction_threads.max(limits[Lane::Compaction as usize]);
        }
        debug_assert!(
            state.members.iter().all(|member| member.id < id),
            "members of a pool are numbered in the order in which they joined"
        );
        state.members.push(Member { id, steps, is_leaving: false, lanes: limits.map(Visits::new) });
        // Constructed first: after an error its drop removes the member.
        let membership = Membership { pool: Arc::clone(pool), id };
        for lane in Lane::ALL {
            let wanted = match lane {
                _ if limits[lane as usize] == 0 => 0,
                Lane::Compaction => state.compaction_threads,
                Lane::Flush | Lane::Upkeep => 1,
            };
            while state.threads[lane as usize] < wanted {
                match pool.start(spawner, lane) {
                    Ok(handle) => state.handles.push(handle),
                    Err(error) => {
                        drop(state);
                        return Err(error);
                    }
                }
                state.threads[lane as usize] += 1;
            }
        }
        drop(state);
        Lane::ALL.iter().for_each(|lane| pool.work[*lane as usize].notify_all());
        Ok(membership)
    }

    fn start(self: &Arc<Self>, spawner: &dyn Spawner, lane: Lane) -> Result<JoinHandle> {
        let pool = Arc::clone(self);
        let body = Box::new(move || pool.run(lane));
        let name = lane.thread_name();
        let started =
            if lane.yields() { spawner.spawn_background(name, body) } else { spawner.spawn(name, body) };
        started.map_err(|error| Error::with_source(ErrorKind::Io, "starting a worker", error))
    }

    /// A thread of `lane`: steps of the members in turn, until there are none.
    fn run(self: Arc<Self>, lane: Lane) {
        let mut state = self.state.lock();
        while !state.members.is_empty() {
            state = match state.next_turn(lane) {
                Some(Turn { id, steps, wakes }) => {
                    drop(state);
                    let next = Self::step(lane, steps.as_ref());
                    // Not under the lock: the last reference to a database leaves the pool.
                    drop(steps);
                    let mut state = self.state.lock();
                    state.end_step(lane, (id, wakes), next);
                    self.ended.notify_all();
                    state
                }
                None => self.wait(lane, state),
            };
        }
        assert!(state.threads[lane as usize] > 0, "a thread of {lane:?} ended that had not begun");
        state.threads[lane as usize] -= 1;
        self.ended.notify_all();
    }

    /// Does a step; nothing if it panicked.
    fn step(lane: Lane, steps: &dyn Steps) -> Option<Next> {
        let next = catch_unwind(AssertUnwindSafe(|| steps.step(lane)));
        if next.is_err() {
            steps.panicked(lane);
        }
        next.ok()
    }

    /// Waits for a wake-up, or until the first member of the lane is due. Each has a time of its
    /// own: wake-ups of one delay no other, and none is due before its time because of another.
    fn wait<'a>(&self, lane: Lane, state: RankedGuard<'a, State>) -> RankedGuard<'a, State> {
        let wait = state.first_due_us(lane).map(|us| Duration::from_micros(us.saturating_sub(now_us())));
        state.wait_timeout(&self.work[lane as usize], wait.unwrap_or(IDLE)).0
    }

    fn wake(&self, id: u64, lane: Lane) {
        if let Some(visits) = self.state.lock().visits(id, lane) {
            visits.is_due = true;
            visits.wakes += 1;
        }
        self.work[lane as usize].notify_all();
    }

    fn leave(&self, id: u64) {
        // Declared before the guard, so that it is dropped without the lock: it may be the last
        // reference to the database, which leaves the pool when it is dropped.
        let _left: Option<Member>;
        let mut state = self.state.lock();
        let Some(position) = state.members.iter().position(|member| member.id == id) else { return };
        state.members[position].is_leaving = true;
        let thread = current_id();
        let own = state.in_steps.iter().find(|(other, _)| *other == thread).copied();
        // A thread that leaves from inside a step of its own does not wait for that step.
        let own_steps = usize::from(own == Some((thread, id)));
        while state.running(id) > own_steps {
            state = state.wait(&self.ended);
        }
        // Another thread may have removed it meanwhile.
        let position = state.members.iter().position(|member| member.id == id);
        _left = position.map(|position| state.members.remove(position));
        debug_assert!(
            state.members.iter().all(|member| member.id != id),
            "a member that left is still in the pool"
        );
        if !state.members.is_empty() {
            return;
        }
        self.work.iter().for_each(Condvar::notify_all);
        // A thread of this pool cannot wait for its own end.
        if own.is_some() {
            return;
        }
        while state.members.is_empty() && state.threads != [0; LANES] {
            state = state.wait(&self.ended);
        }
        // Threads of a later member are among them only if it came in between.
        let handles: Vec<JoinHandle> =
            if state.threads == [0; LANES] { state.handles.drain(..).collect() } else { Vec::new() };
        drop(state);
        for handle in handles {
            let _ = handle.join(); // Panics are caught in the steps.
        }
    }
}

impl State {
    fn visits(&mut self, id: u64, lane: Lane) -> Option<&mut Visits> {
        let member = self.members.iter_mut().find(|member| member.id == id);
        member.map(|member| &mut member.lanes[lane as usize])
    }

    /// Threads in steps of a member.
    fn running(&self, id: u64) -> usize {
        let of = |member: &Member| member.lanes.iter().map(|visits| visits.running).sum();
        self.members.iter().find(|member| member.id == id).map_or(0, of)
    }

    /// When the first member of the lane is due, in the process's microseconds.
    fn first_due_us(&self, lane: Lane) -> Option<u64> {
        // Those that leave take no step any more: a thread that woke for them would find nothing.
        let members = self.members.iter().filter(|member| !member.is_leaving);
        members.filter_map(|member| member.lanes[lane as usize].step_from_us()).min()
    }

    /// The next member of the lane that may have work, beginning with the one whose turn it is.
    fn next_turn(&mut self, lane: Lane) -> Option<Turn> {
        let now_us = now_us();
        let count = self.members.len();
        let first = self.turn[lane as usize];
        let position = (0..count).map(|step| (first + step) % count).find(|position| {
            let member = &self.members[*position];
            let from_us = member.lanes[lane as usize].step_from_us();
            !member.is_leaving && from_us.is_some_and(|from_us| from_us <= now_us)
        })?;
        self.turn[lane as usize] = position + 1;
        let member = &mut self.members[position];
        let visits = &mut member.lanes[lane as usize];
        visits.running += 1;
        assert!(visits.running <= visits.limit, "more threads in a member's steps than it allows");
        let thread = current_id();
        debug_assert!(
            self.in_steps.iter().all(|(other, _)| *other != thread),
            "a thread of a pool begins a step inside of another"
        );
        self.in_steps.push((thread, member.id));
        Some(Turn { id: member.id, steps: Arc::clone(&member.steps), wakes: visits.wakes })
    }

    fn end_step(&mut self, lane: Lane, (id, wakes): (u64, u64), next: Option<Next>) {
        let thread = current_id();
        debug_assert!(self.in_steps.contains(&(thread, id)), "a step of member {id} ended on another thread");
        self.in_steps.retain(|(other, _)| *other != thread);
        // A member stays until its last step has ended, unless it left from inside this step.
        let Some(visits) = self.visits(id, lane) else { return };
        assert!(visits.running > 0, "a step ended that had not begun");
        visits.running -= 1;
        match next {
            Some(Next::Now) => visits.is_due = true,
            Some(Next::After(wait)) => {
                visits.is_due &= visits.wakes != wakes;
                let wait_us = u64::try_from(wait.min(IDLE).as_micros()).unwrap_or(u64::MAX);
                visits.due_us = now_us().saturating_add(wait_us);
            }
            None => visits.has_panicked = true,
        }
    }
}

/// A database's place in a pool; dropping it leaves the pool.
pub(crate) struct Membership {
    pool: Arc<Pool>,
    id: u64,
}

impl Membership {
    /// Tells the lane's threads that there is work.
    pub fn wake(&self, lane: Lane) {
        self.pool.wake(self.id, lane);
    }

    /// Waits for running steps of the member, and removes it. Repeated calls do nothing.
    pub fn leave(&self) {
        self.pool.leave(self.id);
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.leave();
    }
}
