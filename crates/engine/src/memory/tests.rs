//! Tests of the manager alone: charges, floors, and the division among made-up consumers.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba_env::{Env, MemFs, lock};
use shamba_key::KeyspaceId;
use shamba_model::memory::constants::{BUDGET_BYTES_MIN, WINDOW_US};
use shamba_model::memory::{PlanValue, shared_bytes};
use shamba_table::{Charge, Residency};
use shamba_tree::version::Version;

use super::*;
use crate::sync::Mutex;
use crate::telemetry::Observers;

const MIB: u64 = 1 << 20;
const BUDGET_BYTES: u64 = 16 * MIB;

/// The memory of a budget under these settings.
fn manager(settings: Settings) -> MemoryManager {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let observers = Observers { listener: None, info_log: false, times_lookups: false };
    let telemetry = Arc::new(Telemetry::new(&env, Path::new("/"), observers, 1));
    MemoryManager::new(Arc::new(settings), telemetry, 0)
}

fn of_budget(memory_budget_bytes: u64) -> MemoryManager {
    manager(Settings { memory_budget_bytes, ..Settings::default() })
}

/// Holds filters of no table, and frees what it is told to.
struct Filters {
    charge: Mutex<Charge>,
    floor_bytes: u64,
    /// Number of calls of `shrink`.
    shrunk: AtomicU64,
}

impl Filters {
    /// A consumer of `memory` that holds `bytes`, of which `floor_bytes` stay.
    fn of(memory: &MemoryManager, bytes: u64, floor_bytes: u64) -> Arc<Self> {
        let charge = Mutex::new(Charge::new(memory.ledger(), LedgerPart::Filters, bytes));
        let filters = Arc::new(Self { charge, floor_bytes, shrunk: AtomicU64::new(0) });
        let weak: Weak<Self> = Arc::downgrade(&filters);
        memory.register(weak);
        filters
    }

    fn shrunk(&self) -> u64 {
        self.shrunk.load(Ordering::Relaxed)
    }
}

impl Consumer for Filters {
    fn held(&self) -> u64 {
        lock(&self.charge).bytes()
    }

    fn floor(&self) -> u64 {
        self.floor_bytes
    }

    fn shrink(&self, target: u64) -> u64 {
        self.shrunk.fetch_add(1, Ordering::Relaxed);
        let mut charge = lock(&self.charge);
        let bytes = charge.bytes().min(target.max(self.floor_bytes));
        charge.resize(bytes);
        bytes
    }
}

fn memtables(memory: &MemoryManager) -> Charge {
    Charge::new(memory.ledger(), LedgerPart::Memtables, 0)
}

#[test]
fn the_cache_gives_memory_first_then_consumers_down_to_their_floor() {
    let memory = of_budget(BUDGET_BYTES);
    let filters = Filters::of(&memory, 4 * MIB, MIB);
    memory.balance();
    let before = memory.cache().capacity_bytes();
    let mut charge = memtables(&memory);
    memory.charge(&mut charge, 2 * MIB);
    assert_eq!(memory.cache().capacity_bytes(), before - 2 * MIB);
    assert_eq!((filters.held(), filters.shrunk()), (4 * MIB, 0), "the cache had enough");
    // Beyond all that the cache has.
    memory.charge(&mut charge, 2 * MIB + before + MIB);
    assert_eq!(memory.cache().capacity_bytes(), 0);
    assert!((MIB..=3 * MIB).contains(&filters.held()), "{} bytes", filters.held());
    assert!(memory.ledger().total() + memory.kept_bytes() <= BUDGET_BYTES);
    // A charge is granted in any case: the caller cannot go on without the memory.
    memory.charge(&mut charge, 2 * BUDGET_BYTES);
    assert_eq!((charge.bytes(), filters.held()), (2 * BUDGET_BYTES, MIB), "the floor stays");
    let calls = filters.shrunk();
    memory.charge(&mut charge, 2 * BUDGET_BYTES + 1);
    assert_eq!(filters.shrunk(), calls, "a consumer at its floor has nothing to give");
    assert_eq!(memory.consumers_room_bytes(), 0, "growth that can wait has no room");
    let warnings = memory.telemetry.warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("blocks are not cached"), "{warnings:?}");
    drop(charge);
    memory.balance();
    assert!(memory.cache().capacity_bytes() >= before, "the cache has the rest again");
}

#[test]
fn consumers_give_memory_in_order_and_only_as_much_as_is_missing() {
    let memory = of_budget(BUDGET_BYTES);
    let (first, second) = (Filters::of(&memory, 3 * MIB, 0), Filters::of(&memory, 3 * MIB, 0));
    let dropped = Filters::of(&memory, 3 * MIB, 0);
    drop(dropped);
    assert_eq!(memory.consumers().len(), 2, "one that is gone is asked for nothing");
    memory.balance();
    let mut charge = memtables(&memory);
    let all_bytes = memory.cache().capacity_bytes();
    memory.charge(&mut charge, all_bytes + MIB);
    assert!(first.held() < 3 * MIB && second.held() == 3 * MIB);
    memory.charge(&mut charge, all_bytes + 4 * MIB);
    assert!(first.held() == 0 && second.held() < 3 * MIB);
}

#[test]
fn memory_of_work_is_not_set_aside_twice() {
    let memory = of_budget(BUDGET_BYTES);
    let _filters = Filters::of(&memory, MIB, 0);
    memory.balance();
    let before = memory.consumers_bytes_max();
    // A flush takes the memory kept free for it, and ends.
    let work = Charge::new(memory.ledger(), LedgerPart::WriteBuffers, memory.kept_bytes());
    memory.balance();
    assert_eq!((memory.kept_bytes(), memory.consumers_bytes_max()), (0, before));
    drop(work);
    assert_eq!(memory.consumers_bytes_max(), before);
}

#[test]
fn memory_of_work_is_lent_while_no_writes_come_to_those_who_return_it() {
    for (filter_residency, is_lent) in [(Residency::Budgeted, true), (Residency::Pinned, false)] {
        let memory = manager(Settings { filter_residency, ..Settings::default() });
        let kept_bytes = memory.kept_bytes();
        assert_eq!(kept_bytes, memory.settings.work_bytes());
        memory.set_writes_idle(true);
        assert!(memory.writes_idle());
        assert_eq!(memory.kept_bytes(), if is_lent { 0 } else { kept_bytes });
        memory.set_writes_idle(false);
        assert_eq!(memory.kept_bytes(), kept_bytes);
    }
    let read_only = manager(Settings { read_only: true, ..Settings::default() });
    assert_eq!(read_only.kept_bytes(), 0, "there is no such work");
}

#[test]
fn what_a_burst_took_does_not_become_the_caches_share() {
    let memory = of_budget(BUDGET_BYTES);
    let _filters = Filters::of(&memory, MIB, 0);
    let mut charge = memtables(&memory);
    memory.charge(&mut charge, 4 * MIB);
    memory.charge(&mut charge, 0);
    let (consumers, cache) = memory.shares_bytes();
    let peak_bytes = memory.division.others_peak_bytes.load(Ordering::Relaxed);
    assert!(peak_bytes >= 4 * MIB);
    assert_eq!(consumers + cache, shared_bytes(BUDGET_BYTES, peak_bytes), "nothing is shared out twice");
    for window in 1..20 {
        memory.decide_anew(window * WINDOW_US, 1_000.0, &PlanValue::default());
        assert_eq!(memory.shares_bytes(), (consumers, cache), "window {window}");
    }
    // Windows that end forget the burst.
    (20..200).for_each(|window| memory.end_window(window * WINDOW_US, 1_000.0, &PlanValue::default()));
    let (consumers, cache) = memory.shares_bytes();
    assert!(consumers + cache > shared_bytes(BUDGET_BYTES, 3 * MIB), "{consumers} and {cache}");
}

#[test]
fn memory_moves_to_where_it_saves_more_down_to_the_floors() {
    let memory = of_budget(BUDGET_BYTES);
    let _filters = Filters::of(&memory, MIB, MIB);
    memory.balance();
    let (first_consumers, first_cache) = memory.shares_bytes();
    let plan = PlanValue {
        gain_per_byte: 1e3,
        loss_per_byte: 1e3,
        useful_bytes: BUDGET_BYTES,
        ..PlanValue::default()
    };
    let mut before = (first_consumers, first_cache);
    for window in 1..100 {
        memory.decide_anew(window * WINDOW_US, 1_000.0, &plan);
        let now = memory.shares_bytes();
        assert!(now.0 >= before.0 && now.1 <= before.1, "window {window}: {before:?}, then {now:?}");
        let others_bytes = memory.others_bytes() + memory.kept_bytes();
        assert!(now.0 + now.1 <= shared_bytes(BUDGET_BYTES, others_bytes), "{now:?}");
        before = now;
    }
    let (consumers, cache) = before;
    assert!(consumers > first_consumers && cache < first_cache / 2 && cache > 0, "{before:?}");
    memory.decide_anew(100 * WINDOW_US, 1_000.0, &plan);
    assert_eq!(memory.shares_bytes(), (consumers, cache), "at the floor of the cache");
}

#[test]
fn memtables_follow_what_writes_gain_and_a_new_design_begins_anew() {
    let memory = of_budget(64 * MIB);
    let _filters = Filters::of(&memory, MIB, 0);
    let set_bytes = memory.settings.memtable_bytes();
    assert_eq!(memory.memtable_limit_bytes(), set_bytes, "nothing is decided yet");
    for window in 1..1_000 {
        memory.telemetry.work().bytes_flushed.fetch_add(1 << 30, Ordering::Relaxed);
        memory.end_window(window * WINDOW_US, 100_000.0, &PlanValue::default());
    }
    let limit_bytes = memory.memtable_limit_bytes();
    assert!((set_bytes + 1..=2 * set_bytes).contains(&limit_bytes), "{limit_bytes} of {set_bytes}");
    memory.forget_memtable_bytes();
    assert_eq!(memory.memtable_limit_bytes(), set_bytes);
}

#[test]
fn trees_are_charged_and_too_many_tables_are_warned_of_once() {
    let view = |tables: u32| -> Arc<View> {
        let table = |n: u32| format!("{n:06}:k{n:06}..k{n:06}a 1");
        let text = format!("L1: r1@1[{}]\n", (1..=tables).map(table).collect::<Vec<_>>().join(", "));
        let version: Version = text.parse().expect("notation");
        Arc::new(View::new(KeyspaceId::DEFAULT, Vec::new(), Arc::new(version)))
    };
    let memory = of_budget(BUDGET_BYTES_MIN);
    let (few, many) = (view(10), view(10_000));
    // The curve of reuse is charged to the same part.
    let held_bytes = || memory.ledger().bytes(LedgerPart::TableMeta);
    let before = held_bytes();
    memory.charge_trees(std::slice::from_ref(&few));
    let of_few = held_bytes() - before;
    assert_eq!((of_few, memory.tables().count), (few.metadata_bytes() as u64, 10));
    for _ in 0..2 {
        memory.charge_trees(&[Arc::clone(&few), Arc::clone(&many)]);
    }
    assert!(held_bytes() > before + of_few && memory.tables().count == 10_010);
    let warned = |text: &str| memory.telemetry.warnings().iter().filter(|all| all.contains(text)).count();
    assert_eq!(warned("too small to keep all tables open"), 1);
    let metas: Vec<&TableMeta> = many.version.tables().map(|(_, _, table)| table.meta.as_ref()).collect();
    assert!(
        memory.tables_to_open(&metas[..10]).iter().all(|is_open| *is_open) && !memory.has_closed_tables()
    );
    assert!(memory.tables_to_open(&metas).contains(&false) && memory.has_closed_tables());
}
