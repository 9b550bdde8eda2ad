//! Figures shared by threads: the memory ledger, and the writers' cached back-pressure state.

use std::sync::Arc;

use loom::thread;

use crate::broken::{Broken, is_broken};
use crate::ledger::{Charge, Ledger, LedgerPart};
use crate::sync::{Mutex, PoisonError};

#[path = "../../../../../crates/engine/src/writer/room.rs"]
mod room;

use room::Room;

const PART: LedgerPart = LedgerPart::Iterators;
const LIMIT_BYTES: u64 = 100;
const ASKED_BYTES: u64 = 60;

/// Two optional reservations ask for more than is left, and release it. The total exceeds the limit
/// by at most one request, the peak shows it, and in the end nothing is held.
pub fn ledger() {
    let ledger = Arc::new(Ledger::new());
    ledger.limit(PART, LIMIT_BYTES);
    let ask = |ledger: Arc<Ledger>| {
        let mut charge = Charge::new(&ledger, PART, 0);
        let has_room = charge.try_resize(ASKED_BYTES);
        if has_room {
            let held = ledger.bytes(PART);
            assert!((ASKED_BYTES..=LIMIT_BYTES + ASKED_BYTES).contains(&held), "{held} bytes are held");
            assert!(ledger.peak() >= ASKED_BYTES);
        }
        has_room
    };
    let other = {
        let ledger = Arc::clone(&ledger);
        thread::spawn(move || ask(ledger))
    };
    let here = ask(Arc::clone(&ledger));
    let there = other.join().expect("no panic");
    assert!(here || there, "there was room for one of them");
    assert_eq!((ledger.bytes(PART), ledger.total()), (0, 0), "nothing is held any more");
    assert!((ASKED_BYTES..=2 * ASKED_BYTES).contains(&ledger.peak()));
}

/// A writer's cached back-pressure state is never used after a later change.
pub fn pressure() {
    let room = Arc::new(Room::default());
    let price = Arc::new(Mutex::new(1_u16));
    let look = |price: &Mutex<u16>| *price.lock().unwrap_or_else(PoisonError::into_inner);
    let writer = {
        let (room, price) = (Arc::clone(&room), Arc::clone(&price));
        thread::spawn(move || {
            let mut changes = room.changes();
            let now = look(&price);
            if is_broken(Broken::Usage) {
                changes = room.changes();
            }
            room.set_ns_per_byte(changes, now);
        })
    };
    let flush = {
        let (room, price) = (Arc::clone(&room), Arc::clone(&price));
        thread::spawn(move || {
            *price.lock().unwrap_or_else(PoisonError::into_inner) = 2;
            room.changed();
        })
    };
    flush.join().expect("no panic");
    let known = room.ns_per_byte();
    assert!(known.is_none_or(|price| price == 2), "a writer pays {known:?} for what costs 2");
    writer.join().expect("no panic");
}
