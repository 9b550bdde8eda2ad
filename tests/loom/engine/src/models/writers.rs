//! Group commit: the queue of writers.

use std::sync::Arc;

use loom::thread;

use crate::broken::{Broken, is_broken};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

#[path = "../../../../../crates/engine/src/writer/line.rs"]
mod line;

use line::{Lead, Line, Ticket, Turn};

struct Shared {
    line: Line<u64, u64>,
    /// The log: the writes, in order.
    log: Mutex<Vec<u64>>,
    /// Number of current leaders.
    leading: AtomicU64,
}

impl Shared {
    fn new() -> Arc<Self> {
        let abandoned = |_| 0;
        Arc::new(Self { line: Line::new(abandoned), log: Mutex::new(Vec::new()), leading: AtomicU64::new(0) })
    }

    /// Commits as the engine does: directly, as a leader, or as a follower. Returns the writer's
    /// result.
    fn commit(&self, own: u64) -> u64 {
        if !self.line.is_led()
            && let Ok(mut log) = self.log.try_lock()
        {
            log.push(own);
            return own;
        }
        if let Some(lead) = self.line.try_to_lead() {
            return self.lead(lead, own);
        }
        match self.line.join(&Ticket::new(), own) {
            Turn::Lead(lead, own) => self.lead(lead, own),
            Turn::Done(answer) => answer,
        }
    }

    fn lead(&self, mut lead: Lead<'_, u64, u64>, own: u64) -> u64 {
        assert_eq!(self.leading.fetch_add(1, Ordering::AcqRel), 0, "two lead");
        let mut log = self.log.lock().expect("no panic");
        lead.gather(true, |_| true);
        log.push(own);
        log.extend(lead.followers.iter().map(|follower| follower.request));
        drop(log);
        lead.answer(|request| request);
        self.leading.fetch_sub(1, Ordering::AcqRel);
        if is_broken(Broken::Usage) {
            // The leadership is not passed on.
            std::mem::forget(lead);
        }
        own
    }
}

/// Three writers: each gets its own result, everything is written once, and no writer waits for
/// ever.
pub fn group_commit() {
    let shared = Shared::new();
    let others = [1, 2].map(|own| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || assert_eq!(shared.commit(own), own, "another one's answer"))
    });
    assert_eq!(shared.commit(3), 3, "another one's answer");
    for other in others {
        other.join().expect("no panic");
    }
    let mut log = shared.log.lock().expect("no panic").clone();
    log.sort_unstable();
    assert_eq!(log, [1, 2, 3], "written");
    assert_eq!(shared.line.standing(), (0, 0), "somebody leads, or waits, and nobody is there");
}
