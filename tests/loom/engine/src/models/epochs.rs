//! Grace periods of the block cache: an unreachable frame is reused only after all readers that
//! could see it have left.

use std::sync::Arc;

use loom::thread;

use crate::sync::atomic::{AtomicU64, Ordering};

#[path = "../../../../../crates/table/src/cache/epoch.rs"]
mod epoch;

use epoch::{Epoch, GRACE_PHASES};

/// More attempts than a frame needs to be reused when there are no readers.
const TRIES: usize = 3;

#[derive(Default)]
struct Shared {
    epoch: Epoch,
    /// The block that the frame holds; 0: none.
    key: AtomicU64,
    /// The frame: the block whose bytes it has.
    bytes: AtomicU64,
}

fn read(shared: &Shared) {
    let inside = shared.epoch.enter();
    let key = shared.key.load(Ordering::Acquire);
    if key != 0 {
        for _ in 0..2 {
            let bytes = shared.bytes.load(Ordering::Relaxed);
            assert_eq!(bytes, key, "a reader of block {key} sees the bytes of block {bytes}");
        }
    }
    drop(inside);
}

/// Two readers, and a thread that gives the frame to another block.
pub fn grace_periods() {
    let shared = Arc::new(Shared::default());
    shared.bytes.store(1, Ordering::Relaxed);
    shared.key.store(1, Ordering::Release);
    let reader = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || read(&shared))
    };
    let hand = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            shared.key.store(0, Ordering::Release);
            let since = shared.epoch.phase();
            for _ in 0..TRIES {
                if shared.epoch.phase() >= since + GRACE_PHASES {
                    shared.bytes.store(2, Ordering::Relaxed);
                    shared.key.store(2, Ordering::Release);
                    return true;
                }
                shared.epoch.try_advance();
            }
            false
        })
    };
    read(&shared);
    reader.join().expect("no panic");
    hand.join().expect("no panic");
    // There are no readers: nothing delays the phases.
    assert!(shared.epoch.try_advance() && shared.epoch.try_advance());
}
