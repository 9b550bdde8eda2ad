//! The line of waiting writers, and the passing of leadership between threads (group commit).
//!
//! A writer joins the line with a request. The first one becomes the leader. It takes the requests
//! of the waiting writers, carries them out together with its own, and answers each. When it is
//! done, and also if it panics, the next waiting writer becomes the leader, with its own request
//! first. If no writer waits, the line has no leader.
//!
//! Invariants: there is at most one leader. Every writer that joins either gets an answer or
//! becomes the leader, exactly once. No writer waits while there is no leader. Lock order: the
//! queue before a ticket's place.
//!
//! The contents of requests, and the writers that bypass the line, are the subject of
//! [`super::queue`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::lock_order;
use crate::ranked::Ranked;
use crate::sync::Condvar;
use crate::sync::atomic::{AtomicBool, Ordering};

enum Place<R, A> {
    /// No writer waits with this ticket.
    Free,
    Waiting(R),
    /// A leader has taken the request.
    Taken,
    /// The writer becomes the leader, with its own request first.
    Lead(R),
    Done(A),
}

/// The place at which one follower at a time waits for its answer.
pub(crate) struct Ticket<R, A> {
    place: Ranked<Place<R, A>>,
    changed: Condvar,
}

impl<R, A> Ticket<R, A> {
    /// A free ticket.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { place: Ranked::new(lock_order::COMMIT_TICKET, Place::Free), changed: Condvar::new() })
    }

    fn set(&self, place: Place<R, A>) {
        *self.place.lock() = place;
        self.changed.notify_one();
    }

    fn take_request(&self) -> Option<R> {
        let mut place = self.place.lock();
        match std::mem::replace(&mut *place, Place::Taken) {
            Place::Waiting(request) => Some(request),
            other => {
                *place = other;
                None
            }
        }
    }
}

/// A writer whose request the leader has taken.
pub(crate) struct Follower<R, A> {
    ticket: Arc<Ticket<R, A>>,
    /// The follower's request.
    pub request: R,
}

struct Queue<R, A> {
    waiting: VecDeque<Arc<Ticket<R, A>>>,
    leading: bool,
    /// Memory for the next group's followers.
    spare: Vec<Follower<R, A>>,
    /// Number of waiting writers at which [`Line::await_waiting`] ends; `None` while the leader
    /// does not wait for writers.
    awaited: Option<usize>,
}

/// The waiting writers and the leadership.
pub(crate) struct Line<R, A> {
    queue: Ranked<Queue<R, A>>,
    /// Copy of [`Queue::leading`], read without the lock, so that a new writer does not overtake
    /// the waiting ones.
    is_led: AtomicBool,
    /// Signalled when [`Queue::awaited`] writers wait.
    gathered: Condvar,
    /// Makes the answer for followers whose leader panicked.
    abandoned: fn(R) -> A,
}

/// Outcome of joining the line.
pub(crate) enum Turn<'l, R, A> {
    /// The writer is the leader; its request is returned.
    Lead(Lead<'l, R, A>, R),
    /// Another writer was the leader; this is its answer.
    Done(A),
}

impl<R, A> Line<R, A> {
    /// An empty line. `abandoned` makes the answer for followers whose leader panicked.
    pub fn new(abandoned: fn(R) -> A) -> Self {
        let queue = Queue { waiting: VecDeque::new(), leading: false, spare: Vec::new(), awaited: None };
        Self {
            queue: Ranked::new(lock_order::COMMIT_LINE, queue),
            is_led: AtomicBool::new(false),
            gathered: Condvar::new(),
            abandoned,
        }
    }

    /// Whether there is a leader. Read without a lock, so it may be out of date.
    #[inline]
    pub fn is_led(&self) -> bool {
        self.is_led.load(Ordering::Relaxed)
    }

    /// Number of leaders (0 or 1) and of waiting writers.
    pub fn standing(&self) -> (usize, usize) {
        let queue = self.queue.lock();
        (usize::from(queue.leading), queue.waiting.len())
    }

    /// Takes the leadership, if there is no leader.
    pub fn try_to_lead(&self) -> Option<Lead<'_, R, A>> {
        self.begin_to_lead(&mut self.queue.lock())
    }

    fn begin_to_lead(&self, queue: &mut Queue<R, A>) -> Option<Lead<'_, R, A>> {
        if queue.leading {
            return None;
        }
        debug_assert!(queue.waiting.is_empty(), "writers wait while nobody leads");
        queue.leading = true;
        self.is_led.store(true, Ordering::Relaxed);
        Some(self.lead())
    }

    fn lead(&self) -> Lead<'_, R, A> {
        Lead { line: self, followers: Vec::new() }
    }

    /// Joins the line with a request. Returns at once if there is no leader; otherwise waits for an
    /// answer or for the leadership.
    pub fn join(&self, ticket: &Arc<Ticket<R, A>>, request: R) -> Turn<'_, R, A> {
        {
            let mut queue = self.queue.lock();
            if let Some(lead) = self.begin_to_lead(&mut queue) {
                return Turn::Lead(lead, request);
            }
            let before = std::mem::replace(&mut *ticket.place.lock(), Place::Waiting(request));
            debug_assert!(matches!(before, Place::Free), "two writers wait with one ticket");
            queue.waiting.push_back(Arc::clone(ticket));
            if queue.awaited.is_some_and(|awaited| queue.waiting.len() >= awaited) {
                self.gathered.notify_one();
            }
        }
        let mut place = ticket.place.lock();
        loop {
            match std::mem::replace(&mut *place, Place::Free) {
                Place::Done(answer) => return Turn::Done(answer),
                Place::Lead(request) => return Turn::Lead(self.lead(), request),
                other => *place = other,
            }
            place = place.wait(&ticket.changed);
        }
    }

    /// Waits until at least `count` writers wait, or until `left` returns `None`.
    pub fn await_waiting(&self, count: usize, left: impl Fn() -> Option<Duration>) {
        let mut queue = self.queue.lock();
        if queue.waiting.len() >= count {
            return;
        }
        debug_assert!(queue.leading && queue.awaited.is_none(), "another than the leader waits for writers");
        queue.awaited = Some(count);
        while queue.waiting.len() < count {
            let Some(left) = left() else { break };
            (queue, _) = queue.wait_timeout(&self.gathered, left);
        }
        queue.awaited = None;
    }
}

/// The leadership. Dropping it answers the remaining followers and passes it on.
pub(crate) struct Lead<'l, R, A> {
    line: &'l Line<R, A>,
    /// Followers whose requests the leader has taken.
    pub followers: Vec<Follower<R, A>>,
}

impl<R, A> Lead<'_, R, A> {
    /// Takes the requests of waiting writers in order: the first one if `wants_any`, and the next
    /// one as long as `wants_more` returns true for the last one taken.
    pub fn gather(&mut self, wants_any: bool, mut wants_more: impl FnMut(&R) -> bool) {
        let mut queue = self.line.queue.lock();
        debug_assert!(queue.leading, "a writer gathers requests that does not lead");
        debug_assert!(self.followers.is_empty(), "requests were gathered before the answer to earlier ones");
        self.followers = std::mem::take(&mut queue.spare);
        let mut wants = wants_any;
        while wants {
            let Some(ticket) = queue.waiting.pop_front() else { break };
            if let Some(request) = ticket.take_request() {
                wants = wants_more(&request);
                self.followers.push(Follower { ticket, request });
            }
        }
    }

    /// Answers all followers, in order.
    pub fn answer(&mut self, mut answer: impl FnMut(R) -> A) {
        for Follower { ticket, request } in self.followers.drain(..) {
            ticket.set(Place::Done(answer(request)));
        }
    }
}

impl<R, A> Drop for Lead<'_, R, A> {
    fn drop(&mut self) {
        let abandoned = self.line.abandoned;
        self.answer(abandoned);
        let mut queue = self.line.queue.lock();
        debug_assert!(queue.leading, "a leadership ends that has ended already");
        queue.spare = std::mem::take(&mut self.followers);
        while let Some(ticket) = queue.waiting.pop_front() {
            if let Some(request) = ticket.take_request() {
                ticket.set(Place::Lead(request));
                return;
            }
        }
        queue.leading = false;
        self.line.is_led.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::sync::atomic::AtomicU32;

    #[test]
    fn a_line_has_one_leader_until_it_ends() {
        let line = Line::<u32, u32>::new(|request| request);
        assert!(!line.is_led() && line.standing() == (0, 0));
        let lead = line.try_to_lead().expect("nobody leads");
        assert!(line.is_led() && line.standing() == (1, 0));
        assert!(line.try_to_lead().is_none(), "there is a leader already");
        drop(lead);
        assert!(!line.is_led() && line.standing() == (0, 0));
        let Turn::Lead(lead, 7) = line.join(&Ticket::new(), 7) else { panic!("the first one leads") };
        assert!(line.is_led());
        drop(lead);
        assert!(line.try_to_lead().is_some());
    }

    #[test]
    fn a_leader_waits_no_longer_than_it_has_time() {
        let line = Line::<u32, u32>::new(|request| request);
        let lead = line.try_to_lead().expect("nobody leads");
        let asked = Cell::new(0);
        let no_time = || {
            asked.set(asked.get() + 1);
            None
        };
        line.await_waiting(0, no_time);
        assert_eq!(asked.get(), 0, "as many as awaited wait already");
        line.await_waiting(1, no_time);
        assert_eq!(asked.get(), 1, "there is no time left");
        line.await_waiting(1, no_time);
        assert_eq!(asked.get(), 2, "each wait ends before the next");
        drop(lead);
    }

    #[test]
    fn a_leader_is_woken_once_by_the_last_writer_that_it_awaits() {
        let line = Line::<u32, u32>::new(|_| 0);
        let mut lead = line.try_to_lead().expect("nobody leads");
        let asked = AtomicU32::new(0);
        let waits = AtomicBool::new(false);
        let join = |request| match line.join(&Ticket::new(), request) {
            Turn::Done(answer) => answer,
            Turn::Lead(..) => panic!("the leader answers everyone"),
        };
        let wait_for = |writers| {
            while !waits.load(Ordering::Relaxed) || line.standing().1 < writers {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                wait_for(0);
                join(1)
            });
            let second = scope.spawn(|| {
                wait_for(1);
                // Time for a leader that was woken too early to ask again.
                for _ in 0..1_000 {
                    if asked.load(Ordering::Relaxed) > 1 {
                        break;
                    }
                    std::thread::yield_now();
                }
                join(2)
            });
            line.await_waiting(2, || {
                // The lock of the line is held here: writers join when the leader waits.
                waits.store(true, Ordering::Relaxed);
                (asked.fetch_add(1, Ordering::Relaxed) == 0).then_some(Duration::from_secs(60))
            });
            let standing = line.standing();
            // Whatever came of the wait, the threads must end.
            waits.store(true, Ordering::Relaxed);
            wait_for(2);
            lead.gather(true, |_| true);
            lead.answer(|request| 10 * request);
            let answers = [first, second].map(|joined| joined.join().expect("no panic"));
            assert_eq!(answers, [10, 20]);
            assert_eq!((asked.load(Ordering::Relaxed), standing), (1, (1, 2)), "a wait for two writers");
        });
        drop(lead);
        assert!(!line.is_led());
    }
}
