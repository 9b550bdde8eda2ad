//! Timing of lookups without the cost of the clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba_env::Clock;
use shamba_key::DigestKind;

use super::*;
use crate::expiry::ExpiryClock;

/// A clock that advances only by its reads, 40 ns each.
#[derive(Debug, Default)]
struct SlowToRead {
    ns: AtomicU64,
}

impl Clock for SlowToRead {
    fn now_us(&self) -> u64 {
        self.now_ns() / 1_000
    }

    fn now_ns(&self) -> u64 {
        self.ns.fetch_add(40, Ordering::Relaxed)
    }

    fn unix_ms(&self) -> u64 {
        0
    }

    fn sleep_us(&self, _: u64) {}

    fn wait_ns(&self, ns: u64) {
        self.ns.fetch_add(ns, Ordering::Relaxed);
    }
}

#[test]
fn reading_the_clock_is_charged_to_no_part() {
    let clock = Arc::new(SlowToRead::default());
    let timer = Timer::new(clock.clone());
    let opened = OpenedTables::default();
    let expiry = ExpiryClock::new(clock.clone(), None);
    let time = ReadTime::new(&expiry, 0);
    let settings = LookupSettings {
        opened: &opened,
        digest: DigestFn::new(DigestKind::default(), 0),
        hash_sharing: true,
        prefetch: true,
        timer: Some(&timer),
        records: None,
        time: &time,
    };
    assert_eq!(settings.clock_read_ns(), 40);
    let begin_ns = settings.now_ns();
    assert_eq!(settings.elapsed_ns(begin_ns, settings.now_ns()), 0, "nothing was done in between");
    let begin_ns = settings.now_ns();
    clock.wait_ns(25);
    assert_eq!(settings.elapsed_ns(begin_ns, settings.now_ns()), 25);
    let untimed = LookupSettings { timer: None, ..settings };
    assert_eq!((untimed.now_ns(), untimed.clock_read_ns(), untimed.elapsed_ns(0, 0)), (0, 0, 0));
}
