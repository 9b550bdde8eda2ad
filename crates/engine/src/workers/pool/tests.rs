//! A pool on its own: turns, limits, wake-ups, leaving, panics.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use shamba_env::{JoinHandle, Spawner, ThreadSpawner, lock};

use super::super::{Lane, Membership, Next, Steps, Workers};

/// Longer than any test takes: only wake-ups make a member due.
const LONG: Duration = Duration::from_secs(600);

type Step = Box<dyn FnOnce() -> Next + Send>;

/// A member with a list of compaction steps.
struct Listed {
    limit: usize,
    steps: Mutex<VecDeque<Step>>,
    running: AtomicUsize,
    most_running: AtomicUsize,
    has_panicked: AtomicBool,
}

impl Listed {
    fn new(limit: usize, steps: impl IntoIterator<Item = Step>) -> Arc<Self> {
        Arc::new(Self {
            limit,
            steps: Mutex::new(steps.into_iter().collect()),
            running: AtomicUsize::new(0),
            most_running: AtomicUsize::new(0),
            has_panicked: AtomicBool::new(false),
        })
    }

    fn push(&self, step: Step) {
        lock(&self.steps).push_back(step);
    }
}

impl Steps for Listed {
    fn limit(&self, lane: Lane) -> usize {
        if lane == Lane::Compaction { self.limit } else { 0 }
    }

    fn step(&self, lane: Lane) -> Next {
        assert_eq!(lane, Lane::Compaction, "a lane without threads");
        let Some(step) = lock(&self.steps).pop_front() else { return Next::After(LONG) };
        let running = 1 + self.running.fetch_add(1, Ordering::SeqCst);
        self.most_running.fetch_max(running, Ordering::SeqCst);
        let next = step();
        self.running.fetch_sub(1, Ordering::SeqCst);
        next
    }

    fn panicked(&self, _lane: Lane) {
        self.has_panicked.store(true, Ordering::SeqCst);
    }
}

fn join(workers: &Workers, steps: &Arc<Listed>) -> Membership {
    let steps = Arc::clone(steps) as Arc<dyn Steps>;
    workers.join(&ThreadSpawner::new(), steps).expect("threads start")
}

/// A step that sends `name`.
fn says(name: usize, to: &Sender<usize>) -> Step {
    let to = to.clone();
    Box::new(move || {
        to.send(name).expect("the test listens");
        Next::Now
    })
}

/// A step that says when it begins and waits for a permission to end.
fn gated(began: &Sender<usize>, name: usize) -> (Step, Sender<()>) {
    let (open, gate): (Sender<()>, Receiver<()>) = channel();
    let began = began.clone();
    let step = move || {
        began.send(name).expect("the test listens");
        gate.recv().expect("the test opens the gate");
        Next::Now
    };
    (Box::new(step), open)
}

#[test]
fn members_take_turns_on_one_thread() {
    let (to, said) = channel();
    let (first, open) = gated(&to, 9);
    let workers = Workers::new(1);
    let gate = Listed::new(1, [first]);
    let _gate = join(&workers, &gate);
    assert_eq!(said.recv(), Ok(9));
    // Both join while the thread is busy, so that it finds both with all their steps.
    let of = |name| Listed::new(1, (0..4).map(|_| says(name, &to)));
    let (one, other) = (of(1), of(2));
    let (_one, _other) = (join(&workers, &one), join(&workers, &other));
    open.send(()).expect("the step waits");
    let order: Vec<usize> = said.iter().take(8).collect();
    assert_eq!(order, [1, 2, 1, 2, 1, 2, 1, 2]);
}

#[test]
fn steps_of_a_member_run_side_by_side_up_to_its_limit() {
    let (to, began) = channel();
    let (steps, gates): (Vec<Step>, Vec<Sender<()>>) = (0..6).map(|name| gated(&to, name)).unzip();
    let workers = Workers::new(4);
    let member = Listed::new(2, steps);
    let membership = join(&workers, &member);
    let mut first: Vec<usize> = began.iter().take(2).collect();
    first.sort_unstable();
    assert_eq!(first, [0, 1], "two threads work at once");
    gates.iter().for_each(|gate| gate.send(()).expect("the step waits for its gate"));
    assert_eq!(began.iter().take(4).count(), 4);
    membership.leave();
    assert_eq!(member.most_running.load(Ordering::SeqCst), 2);
}

/// A member that wants its next step at once takes none any more when it leaves.
#[test]
fn threads_do_not_spin_for_a_member_that_leaves() {
    let (to, began) = channel();
    let (slow, open_slow) = gated(&to, 0);
    let (open_quick, gate): (Sender<()>, Receiver<()>) = channel();
    let quick: Step = Box::new(move || {
        to.send(1).expect("the test listens");
        gate.recv().expect("the test opens the gate");
        Next::After(Duration::ZERO)
    });
    let workers = Workers::new(2);
    let leaving = Listed::new(2, [slow, quick]);
    let membership = join(&workers, &leaving);
    assert_eq!(began.iter().take(2).sum::<usize>(), 1, "both run");
    std::thread::scope(|scope| {
        let left = scope.spawn(|| membership.leave());
        let state = || workers.pool.state.lock();
        while !state().members[0].is_leaving {
            std::thread::yield_now();
        }
        open_quick.send(()).expect("the step waits");
        while state().members[0].lanes[Lane::Compaction as usize].running > 1 {
            std::thread::yield_now();
        }
        let due_us = state().first_due_us(Lane::Compaction);
        open_slow.send(()).expect("the step waits");
        left.join().expect("left");
        assert_eq!(due_us, None, "a thread wakes for the member that leaves");
    });
}

#[test]
fn one_member_does_not_wait_for_another_ones_step_when_there_are_two_threads() {
    let (to, began) = channel();
    let (step, open) = gated(&to, 0);
    let workers = Workers::new(2);
    let (slow, quick) = (Listed::new(2, [step]), Listed::new(2, []));
    let (slow_membership, membership) = (join(&workers, &slow), join(&workers, &quick));
    assert_eq!(began.recv(), Ok(0));
    quick.push(says(1, &to));
    membership.wake(Lane::Compaction);
    assert_eq!(began.recv(), Ok(1));
    membership.leave(); // Returns although the other member's step goes on.
    open.send(()).expect("the step waits");
    slow_membership.leave();
}

#[test]
fn a_wake_up_during_a_step_that_finds_nothing_is_not_lost() {
    let (to, began) = channel();
    let (open, gate) = channel::<()>();
    let began_to = to.clone();
    let nothing: Step = Box::new(move || {
        began_to.send(0).expect("the test listens");
        gate.recv().expect("the test opens the gate");
        Next::After(LONG)
    });
    let member = Listed::new(1, [nothing]);
    let membership = join(&Workers::new(1), &member);
    assert_eq!(began.recv(), Ok(0));
    member.push(says(1, &to));
    membership.wake(Lane::Compaction);
    open.send(()).expect("the step waits");
    assert_eq!(began.recv(), Ok(1), "the step after the wake-up");
}

#[test]
fn wake_ups_of_one_member_do_not_delay_another() {
    let workers = Workers::new(1);
    let (to, from) = channel();
    let again_after = |time| -> Step { Box::new(move || Next::After(time)) };
    let waits = Listed::new(1, [again_after(Duration::from_millis(30)), says(7, &to)]);
    let busy = Listed::new(1, []);
    let begun = Instant::now();
    let (_waits_joined, busy_joined) = (join(&workers, &waits), join(&workers, &busy));
    // Each wake-up comes long before the other member is due.
    while from.try_recv().is_err() {
        assert!(begun.elapsed() < LONG / 10, "a member that waits is never due while another is woken");
        busy_joined.wake(Lane::Compaction);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(begun.elapsed() >= Duration::from_millis(30), "a member was due before its time");
}

#[test]
fn leaving_waits_for_the_step_that_runs_and_begins_no_other() {
    let (to, began) = channel();
    let (step, open) = gated(&to, 0);
    let member = Listed::new(1, [step, says(1, &to)]);
    let membership = Arc::new(join(&Workers::new(1), &member));
    assert_eq!(began.recv(), Ok(0));
    let leaving = {
        let membership = Arc::clone(&membership);
        std::thread::spawn(move || membership.leave())
    };
    // The gate opens only when the member is leaving, or the second step could begin.
    while !membership.pool.state.lock().members[0].is_leaving {
        std::thread::yield_now();
    }
    assert!(!leaving.is_finished(), "it waits for the step");
    open.send(()).expect("the step waits");
    leaving.join().expect("no panic");
    assert_eq!(member.running.load(Ordering::SeqCst), 0);
    assert_eq!(lock(&member.steps).len(), 1, "the second step never began");
    drop(to);
    assert!(began.try_recv().is_err());
}

#[test]
fn a_member_can_leave_inside_its_own_step() {
    let (to, said) = channel();
    let slot: Arc<Mutex<Option<Membership>>> = Arc::default();
    let (in_step, to_end) = (Arc::clone(&slot), to.clone());
    let (first, open) = gated(&to, 0);
    let leaves: Step = Box::new(move || {
        drop(lock(&in_step).take());
        to_end.send(1).expect("the test listens");
        Next::Now
    });
    let member = Listed::new(1, [first, leaves]);
    *lock(&slot) = Some(join(&Workers::new(1), &member));
    assert_eq!(said.recv(), Ok(0));
    open.send(()).expect("the step waits");
    assert_eq!(said.recv(), Ok(1));
}

#[test]
fn a_panic_ends_the_lane_of_its_member_only() {
    let (to, said) = channel();
    let workers = Workers::new(1);
    let panics: Step = Box::new(|| -> Next { panic!("planted") });
    let bad = Listed::new(1, [panics, says(9, &to)]);
    let good = Listed::new(1, []);
    let (bad_membership, membership) = (join(&workers, &bad), join(&workers, &good));
    while !bad.has_panicked.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    bad_membership.wake(Lane::Compaction);
    good.push(says(1, &to));
    membership.wake(Lane::Compaction);
    assert_eq!(said.recv(), Ok(1));
    assert_eq!(lock(&bad.steps).len(), 1, "no further step of the member that panicked");
}

#[test]
fn threads_end_with_the_last_member_and_start_again_with_the_next() {
    let workers = Workers::new(3);
    for _ in 0..2 {
        let (one, other) = (Listed::new(1, []), Listed::new(9, []));
        let (one, other) = (join(&workers, &one), join(&workers, &other));
        assert_eq!(workers.pool.state.lock().threads, [0, 3, 0], "a fixed pool does not grow");
        one.leave();
        assert_eq!(workers.pool.state.lock().threads, [0, 3, 0]);
        other.leave();
        other.leave();
        assert_eq!(workers.pool.state.lock().threads, [0, 0, 0]);
        assert!(workers.pool.state.lock().handles.is_empty(), "threads were joined");
    }
}

/// Starts a number of threads, then fails.
#[derive(Debug)]
struct Few(AtomicUsize);

impl Spawner for Few {
    fn is_inline(&self) -> bool {
        false
    }

    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle> {
        if self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err() {
            return Err(std::io::Error::other("no more threads"));
        }
        ThreadSpawner::new().spawn(name, work)
    }
}

#[test]
fn a_thread_that_cannot_start_leaves_a_pool_without_the_member() {
    let workers = Workers::new(3);
    let member = Listed::new(3, []);
    let failed = workers.join(&Few(AtomicUsize::new(2)), Arc::clone(&member) as Arc<dyn Steps>);
    let error = failed.err().expect("two of three threads");
    assert!(error.chain().to_string().contains("starting a worker"), "{error}");
    assert!(workers.pool.state.lock().members.is_empty());
    assert_eq!(workers.pool.state.lock().threads, [0, 0, 0]);
    drop(join(&workers, &member));
}
