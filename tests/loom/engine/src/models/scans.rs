//! The slots of scans: views are taken from idle slots, and requested from busy ones.

use std::sync::Arc;

use loom::thread;

use crate::broken::{Broken, is_broken};
use crate::sync::Mutex;

#[path = "../../../../../crates/tree/src/iter/slot.rs"]
mod slot;

use slot::Slot;

const OLD: u32 = 1;
const NEW: u32 = 2;

/// An old view leaves the slot, whatever the scan does concurrently: no second attempt is needed.
pub fn idle_slots() {
    let slot = Arc::new(Slot::default());
    *slot.enter() = Some(OLD);
    let install = {
        let slot = Arc::clone(&slot);
        thread::spawn(move || slot.revoke(|view| *view == OLD))
    };
    let live = slot.enter();
    let was_there = live.is_some();
    let given_up = slot.leave(live, false);
    let taken = install.join().expect("no panic");
    assert!(slot.enter().is_none(), "an idle scan keeps an old view");
    assert!(was_there || given_up.is_none());
    let takers = [given_up, taken].iter().flatten().count();
    assert_eq!(takers, 1, "the view came out {takers} times");
}

/// A busy scan that puts the newest view into its slot keeps it: an older request does not apply to
/// it.
pub fn fresh_slots() {
    let slot = Arc::new(Slot::default());
    let newest = Arc::new(Mutex::new(OLD));
    let install = {
        let (slot, newest) = (Arc::clone(&slot), Arc::clone(&newest));
        thread::spawn(move || {
            *newest.lock().expect("no panic") = NEW;
            slot.revoke(|view| *view == OLD)
        })
    };
    let mut live = slot.enter();
    let view = || *newest.lock().expect("no panic");
    if is_broken(Broken::Usage) {
        let view = view();
        slot.forget_wishes();
        *live = Some(view);
    } else {
        slot.forget_wishes();
        *live = Some(view());
    }
    let _ = slot.leave(live, false);
    install.join().expect("no panic");
    assert_ne!(*slot.enter(), Some(OLD), "an idle scan keeps an old view");
}
