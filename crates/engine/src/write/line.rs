//! The line of writers: who leads, who follows, who leads next.
//!
//! A writer joins the line with a request. The first one leads: it takes the requests of those who wait, does what they ask
//! for together with its own, and answers each. When it is done, and also if it panics, the next one who waits leads, with
//! its own request; if nobody does, the line is free again.
//!
//! Invariants: at most one leads. Whoever joins is answered or leads, once; nobody waits while nobody leads.
//! Lock order: the queue before a ticket's place.
//!
//! Not here: what requests are, and when a writer needs no line ([`super::queue`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change under these locks is one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Place<R, A> {
    /// Nobody waits here.
    Free,
    Waiting(R),
    /// A leader has the request.
    Taken,
    /// The writer is to lead, with its own request first.
    Lead(R),
    Done(A),
}

/// Where a follower waits: one writer at a time.
pub(crate) struct Ticket<R, A> {
    place: Mutex<Place<R, A>>,
    changed: Condvar,
}

impl<R, A> Ticket<R, A> {
    /// A place for somebody to wait.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { place: Mutex::new(Place::Free), changed: Condvar::new() })
    }

    fn set(&self, place: Place<R, A>) {
        *lock(&self.place) = place;
        self.changed.notify_one();
    }

    fn take_request(&self) -> Option<R> {
        let mut place = lock(&self.place);
        match std::mem::replace(&mut *place, Place::Taken) {
            Place::Waiting(request) => Some(request),
            other => {
                *place = other;
                None
            }
        }
    }
}

/// A writer whose request a leader has.
pub(crate) struct Follower<R, A> {
    ticket: Arc<Ticket<R, A>>,
    /// What it asks for.
    pub request: R,
}

struct Queue<R, A> {
    waiting: VecDeque<Arc<Ticket<R, A>>>,
    leading: bool,
    /// Memory for the next group.
    spare: Vec<Follower<R, A>>,
    /// How many must wait before the leader, who waits for them, goes on.
    awaited: Option<usize>,
}

/// The writers that wait.
pub(crate) struct Line<R, A> {
    queue: Mutex<Queue<R, A>>,
    /// [`Queue::leading`]: a newcomer must not push in before those who wait.
    is_led: AtomicBool,
    /// What the leader waits for.
    gathered: Condvar,
    /// What those are told whose leader panicked.
    abandoned: fn(R) -> A,
}

/// What becomes of a writer that joined.
pub(crate) enum Turn<'l, R, A> {
    /// It leads.
    Lead(Lead<'l, R, A>, R),
    /// Another one led.
    Done(A),
}

impl<R, A> Line<R, A> {
    /// A line in which nobody waits; `abandoned` says what followers of a leader that panicked are told.
    pub fn new(abandoned: fn(R) -> A) -> Self {
        let queue = Queue { waiting: VecDeque::new(), leading: false, spare: Vec::new(), awaited: None };
        Self { queue: Mutex::new(queue), is_led: AtomicBool::new(false), gathered: Condvar::new(), abandoned }
    }

    /// Whether somebody leads, as far as one can tell without a lock.
    #[inline]
    pub fn is_led(&self) -> bool {
        self.is_led.load(Ordering::Relaxed)
    }

    /// How many lead, and how many wait.
    pub fn standing(&self) -> (usize, usize) {
        let queue = lock(&self.queue);
        (usize::from(queue.leading), queue.waiting.len())
    }

    /// The lead, if nobody has it.
    pub fn try_to_lead(&self) -> Option<Lead<'_, R, A>> {
        self.begin_to_lead(&mut lock(&self.queue))
    }

    fn begin_to_lead(&self, queue: &mut Queue<R, A>) -> Option<Lead<'_, R, A>> {
        if queue.leading {
            return None;
        }
        queue.leading = true;
        self.is_led.store(true, Ordering::Relaxed);
        Some(self.lead())
    }

    fn lead(&self) -> Lead<'_, R, A> {
        Lead { line: self, followers: Vec::new() }
    }

    /// Queues up with a request, and waits for an answer or for the lead.
    pub fn join(&self, ticket: &Arc<Ticket<R, A>>, request: R) -> Turn<'_, R, A> {
        {
            let mut queue = lock(&self.queue);
            if let Some(lead) = self.begin_to_lead(&mut queue) {
                return Turn::Lead(lead, request);
            }
            *lock(&ticket.place) = Place::Waiting(request);
            queue.waiting.push_back(Arc::clone(ticket));
            if queue.awaited.is_some_and(|awaited| queue.waiting.len() >= awaited) {
                self.gathered.notify_one();
            }
        }
        let mut place = lock(&ticket.place);
        loop {
            match std::mem::replace(&mut *place, Place::Free) {
                Place::Done(answer) => return Turn::Done(answer),
                Place::Lead(request) => return Turn::Lead(self.lead(), request),
                other => *place = other,
            }
            place = ticket.changed.wait(place).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until `count` writers wait, as long as `left` gives time.
    pub fn await_waiting(&self, count: usize, left: impl Fn() -> Option<Duration>) {
        let mut queue = lock(&self.queue);
        if queue.waiting.len() >= count {
            return;
        }
        queue.awaited = Some(count);
        while queue.waiting.len() < count {
            let Some(left) = left() else { break };
            let waited = self.gathered.wait_timeout(queue, left);
            queue = waited.map_or_else(|poison| poison.into_inner().0, |(queue, _)| queue);
        }
        queue.awaited = None;
    }
}

/// The lead: passed on when it is dropped.
pub(crate) struct Lead<'l, R, A> {
    line: &'l Line<R, A>,
    /// Those whose requests it has.
    pub followers: Vec<Follower<R, A>>,
}

impl<R, A> Lead<'_, R, A> {
    /// Takes the requests of those who wait, one after the other: the first if `wants_any`, further ones as long as
    /// `wants_more` after the last.
    pub fn gather(&mut self, wants_any: bool, mut wants_more: impl FnMut(&R) -> bool) {
        let mut queue = lock(&self.line.queue);
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

    /// Answers everybody whose request it has; `answer` gets their numbers in order.
    pub fn answer(&mut self, mut answer: impl FnMut(usize, R) -> A) {
        for (number, Follower { ticket, request }) in self.followers.drain(..).enumerate() {
            ticket.set(Place::Done(answer(number, request)));
        }
    }
}

impl<R, A> Drop for Lead<'_, R, A> {
    fn drop(&mut self) {
        let abandoned = self.line.abandoned;
        self.answer(|_, request| abandoned(request));
        let mut queue = lock(&self.line.queue);
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
