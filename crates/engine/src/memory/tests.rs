//! Tests of the manager alone: charges, floors, and the division among made-up consumers.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba_env::{Env, MemFs, lock};
use shamba_key::{DigestFn, DigestKind, EntryKind, KeyspaceId, SeqNo};
use shamba_model::memory::constants::{BUDGET_BYTES_MIN, JOBS_PART, WINDOW_US};
use shamba_model::memory::databases::convergence_windows;
use shamba_model::memory::{PlanValue, job_bytes_min, shared_bytes};
use shamba_table::{Charge, Residency};
use shamba_tree::records::Cached;
use shamba_tree::version::Version;

use super::*;
use crate::sync::Mutex;
use crate::telemetry::Observers;

const MIB: u64 = 1 << 20;
const BUDGET_BYTES: u64 = 16 * MIB;

/// The memory of a budget under these settings.
fn manager(settings: Settings) -> MemoryManager {
    member_with(settings, None)
}

/// The memory of a database in a shared budget.
fn in_budget(budget: &Budget) -> MemoryManager {
    member_with(Settings::default(), Some(budget.join().expect("it has room for one more")))
}

fn member_with(settings: Settings, member: Option<Member>) -> MemoryManager {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let observers = Observers { listener: None, info_log: false, times_lookups: false };
    let telemetry = Arc::new(Telemetry::new(&env, Path::new("/"), observers, 1));
    MemoryManager::new(Arc::new(settings), member, telemetry, 0)
}

/// Without a record cache.
fn of_budget(memory_budget_bytes: u64) -> MemoryManager {
    manager(Settings { memory_budget_bytes, record_cache_bytes: Some(0), ..Settings::default() })
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

    /// Loads `bytes` more, as residency does: room first.
    fn load(&self, memory: &MemoryManager, bytes: u64) {
        let _room = memory.make_room(bytes);
        let mut charge = lock(&self.charge);
        let bytes = charge.bytes() + bytes;
        charge.resize(bytes);
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

/// Lookups of these keys in turn that ask the record cache; each that no record answers reads once.
fn ask_records(memory: &MemoryManager, keys: Range<u64>, lookups: u64) {
    let digest = DigestFn::new(DigestKind::Xxh3, 1);
    for number in 0..lookups {
        let key = (keys.start + number % (keys.end - keys.start)).to_le_bytes();
        let Some(access) = memory.records().access(true) else { return };
        let at = (SeqNo(2), SeqNo::ZERO);
        if let Cached::Unknown { is_wanted: true } =
            access.ask(KeyspaceId::DEFAULT, digest.digest(&key), &key, at)
        {
            let entry = (SeqNo(1), Some((EntryKind::Put, &[7; 100][..])));
            access.write(KeyspaceId::DEFAULT, (digest.digest(&key), &key), entry, 1);
        }
    }
}

#[test]
fn the_record_cache_grows_where_records_save_reads_and_is_a_sample_where_they_do_not() {
    let auto = |memory_budget_bytes| {
        manager(Settings { memory_budget_bytes, record_cache_bytes: None, ..Settings::default() })
    };
    let memory = auto(BUDGET_BYTES);
    let sample_bytes = memory.records().capacity_bytes() as u64;
    assert!(memory.records().is_sample() && sample_bytes > 0, "{sample_bytes}");
    let windows = |memory: &MemoryManager, windows: Range<u64>, keys: &dyn Fn(u64) -> Range<u64>| {
        for window in windows {
            ask_records(memory, keys(window), 30_000);
            memory.end_window(window * WINDOW_US, 10_000.0, &PlanValue::default());
            let held_bytes = memory.ledger().total() + memory.kept_bytes();
            assert!(held_bytes <= BUDGET_BYTES, "{held_bytes} bytes in window {window}");
        }
    };
    // Some 8,000 records of 150 bytes: more than a step of half a megabyte, and worth reads of 10
    // us.
    windows(&memory, 1..40, &|_| 0..8_000);
    let grown_bytes = memory.records().capacity_bytes() as u64;
    assert!(!memory.records().is_sample() && grown_bytes > MIB, "{grown_bytes} bytes");
    // Keys that are never asked for twice cost the time of asking and save nothing.
    windows(&memory, 40..50, &|window| window << 32..(window + 1) << 32);
    assert!(memory.records().is_sample(), "{} bytes", memory.records().capacity_bytes());
    assert_eq!(memory.records().capacity_bytes() as u64, sample_bytes);
    let off = of_budget(BUDGET_BYTES);
    windows(&off, 1..10, &|_| 0..8_000);
    assert_eq!(off.records().capacity_bytes(), 0, "it is off");
}

#[test]
fn the_record_cache_gives_its_share_back_before_a_charge_exceeds_the_budget() {
    let memory = manager(Settings {
        memory_budget_bytes: BUDGET_BYTES,
        record_cache_bytes: None,
        ..Settings::default()
    });
    memory.set_record_bytes(8 * MIB);
    assert!(!memory.records().is_sample());
    let mut charge = memtables(&memory);
    memory.charge(&mut charge, 12 * MIB);
    let held_bytes = memory.ledger().total();
    assert!(held_bytes <= BUDGET_BYTES, "{held_bytes} bytes");
    assert_eq!(memory.ledger().bytes(LedgerPart::Records), memory.records().capacity_bytes() as u64);
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

#[test]
fn jobs_begin_while_there_is_memory_and_one_alone_always_does() {
    let memory = of_budget(BUDGET_BYTES);
    let all_bytes = BUDGET_BYTES / JOBS_PART;
    let first = memory.reserve(all_bytes - MIB).expect("the memory is free");
    assert_eq!(first.bytes(), all_bytes - MIB);
    assert!(memory.reserve(2 * MIB).is_none(), "the jobs have their part of the budget");
    let second = memory.reserve(MIB / 2).expect("there is half a MiB more than that");
    drop(first);
    let third = memory.reserve(2 * MIB).expect("the first one has ended");
    drop((second, third));
    // Memory that cannot be evicted leaves nothing for jobs, but one that runs alone gets what is
    // set aside for it.
    let mut charge = memtables(&memory);
    memory.charge(&mut charge, BUDGET_BYTES);
    let mut alone = memory.reserve(u64::MAX).expect("it is the only one");
    let alone_bytes = job_bytes_min(memory.settings.work_bytes());
    assert_eq!(alone.bytes(), alone_bytes);
    assert!(memory.reserve(1).is_none());
    assert!(!memory.extend(&mut alone, alone_bytes + 1), "its tables must end earlier");
    drop(charge);
    assert!(memory.extend(&mut alone, 2 * MIB) && alone.bytes() == 2 * MIB);
    drop(alone);
    assert_eq!(memory.reserved.jobs_bytes(), 0, "all is returned");
}

#[test]
fn filters_are_evicted_for_what_a_job_reserves_before_it_takes_it() {
    let memory = of_budget(BUDGET_BYTES);
    let filters = Filters::of(&memory, 10 * MIB, MIB);
    let mut charge = memtables(&memory);
    memory.charge(&mut charge, 2 * MIB);
    let within = || memory.ledger().total() + memory.kept_bytes() <= BUDGET_BYTES;
    assert!(within());
    let job = memory.reserve(4 * MIB).expect("filters can be evicted");
    assert_eq!(filters.shrunk(), 0, "only when the job begins");
    memory.balance();
    assert!(filters.shrunk() > 0 && within());
    let held_bytes = filters.held();
    let mut building = Charge::new(memory.ledger(), LedgerPart::WriteBuffers, 0);
    for bytes in (0..=4 * MIB).step_by(1 << 16) {
        memory.charge(&mut building, bytes);
        assert!(within(), "{bytes}");
    }
    assert_eq!(filters.held(), held_bytes, "the memory was there");
    drop((building, job));
    // A table that is about to be opened counts before it is charged.
    let coming = memory.make_room(5 * MIB);
    assert!(memory.ledger().total() + 5 * MIB + memory.kept_bytes() <= BUDGET_BYTES);
    drop(coming);
    assert_eq!(memory.reserved.coming_bytes(), 0);
}

#[test]
fn threads_that_reserve_at_once_never_get_more_than_there_is() {
    let memory = of_budget(BUDGET_BYTES);
    let most_bytes = AtomicU64::new(0);
    // One job is never alone, so none gets more than the limit.
    let _first = memory.reserve(MIB).expect("the first");
    std::thread::scope(|scope| {
        for thread in 1..5u64 {
            let (memory, most_bytes) = (&memory, &most_bytes);
            scope.spawn(move || {
                let mut held = Vec::new();
                for turn in 0..2_000u64 {
                    match memory.reserve((turn * thread * 7_919) % (2 * MIB)) {
                        Some(reservation) => held.push(reservation),
                        None => held.truncate(held.len() / 2),
                    }
                    most_bytes.fetch_max(memory.reserved.jobs_bytes(), Ordering::Relaxed);
                }
            });
        }
    });
    let most_bytes = most_bytes.load(Ordering::Relaxed);
    assert!(most_bytes <= BUDGET_BYTES / JOBS_PART && most_bytes > BUDGET_BYTES / JOBS_PART / 2);
    assert_eq!(memory.reserved.jobs_bytes(), MIB);
}

const FLOOR: u64 = BUDGET_BYTES_MIN;

/// Bytes that all of `members` may hold.
fn granted_bytes(members: &[MemoryManager]) -> u64 {
    members.iter().filter_map(|memory| memory.member()).map(Member::granted_bytes).sum()
}

#[test]
fn a_budget_too_small_for_another_database_names_its_numbers() {
    let budget = Budget::new(3 * FLOOR - 1);
    let first = in_budget(&budget);
    let second = in_budget(&budget);
    let error = budget.join().map(|_| ()).expect_err("no room for three floors");
    assert_eq!(error.kind(), crate::ErrorKind::Invalid);
    let text = error.to_string();
    for number in [3 * FLOOR - 1, 3, FLOOR, 3 * FLOOR] {
        assert!(text.contains(&number.to_string()), "{number} is missing: {text}");
    }
    assert_eq!(budget.databases(), 2, "nobody has joined");
    drop(first);
    let _third = in_budget(&budget);
    drop(second);
    assert_eq!(budget.databases(), 1);
    assert!(Budget::new(FLOOR - 1).join().is_err());
}

#[test]
fn a_newcomer_has_its_floor_at_once_and_its_part_when_others_have_made_room() {
    let budget = Budget::new(64 * MIB);
    let mut members = vec![in_budget(&budget)];
    let filters = Filters::of(&members[0], 40 * MIB, 0);
    assert_eq!(granted_bytes(&members), 60 * MIB, "all but the floor of the next one");
    members.push(in_budget(&budget));
    assert_eq!(granted_bytes(&members[1..]), FLOOR);
    assert_eq!((filters.held(), filters.shrunk()), (40 * MIB, 0), "nobody else takes its memory");
    assert!(!members[1].follow_budget());
    assert_eq!(granted_bytes(&members[1..]), FLOOR, "nothing is free");
    assert!(!members[0].follow_budget(), "filters need no flush");
    assert!(filters.held() <= 30 * MIB && granted_bytes(&members[..1]) == 30 * MIB);
    members[1].follow_budget();
    assert_eq!(granted_bytes(&members[1..]), 30 * MIB);
    assert_eq!(members[1].settings.budget_bytes(), 30 * MIB, "its sizes follow");
    let third = in_budget(&budget);
    assert_eq!(third.member().map(Member::granted_bytes), Some(FLOOR));
    // One that is dropped returns its part.
    members.remove(0);
    members.push(third);
    (0..2).for_each(|_| members.iter().for_each(|memory| _ = memory.follow_budget()));
    assert_eq!(granted_bytes(&members), 60 * MIB);
    assert!(members.iter().all(|memory| memory.settings.budget_bytes() == 30 * MIB));
    drop(members);
    assert_eq!(granted_bytes(&[in_budget(&budget)]), 60 * MIB, "the last one has returned all");
}

#[test]
fn a_database_keeps_its_grant_until_its_memtables_are_flushed() {
    let budget = Budget::new(64 * MIB);
    let first = in_budget(&budget);
    let mut charge = memtables(&first);
    first.charge(&mut charge, 40 * MIB);
    let second = in_budget(&budget);
    assert!(first.follow_budget(), "a flush is asked for");
    let held_bytes = first.ledger().total() + first.kept_bytes();
    assert_eq!(first.member().map(Member::granted_bytes), Some(held_bytes));
    second.follow_budget();
    assert!(second.settings.budget_bytes() + held_bytes <= 64 * MIB);
    charge.resize(0);
    assert!(!first.follow_budget());
    second.follow_budget();
    assert_eq!((first.settings.budget_bytes(), second.settings.budget_bytes()), (30 * MIB, 30 * MIB));
}

/// Ends a window of all databases; the busy one gains by more memory.
fn end_windows(members: &[MemoryManager], now_us: u64, busy: usize) {
    for (at, memory) in members.iter().enumerate() {
        let per_byte = if at == busy { 9.0 } else { 0.0 };
        let plan = PlanValue {
            gain_per_byte: per_byte,
            loss_per_byte: per_byte,
            useful_bytes: u64::MAX,
            ..PlanValue::default()
        };
        memory.end_window(now_us, 1_000.0, &plan);
        memory.follow_budget();
    }
}

#[test]
fn idle_databases_give_their_memory_to_a_busy_one_within_the_stated_windows() {
    let budget = Budget::new(64 * MIB);
    let members: Vec<_> = (0..3).map(|_| in_budget(&budget)).collect();
    let filters: Vec<_> = members.iter().map(|memory| Filters::of(memory, 2 * MIB, 0)).collect();
    let (mut now_us, mut busy) = (0, 0);
    for _ in 0..3 {
        // Reports are of the window before, and followed in the one after.
        for _ in 0..convergence_windows(3) + 3 {
            now_us += WINDOW_US;
            // The busy one loads filters as it can.
            let room_bytes = members[busy].consumers_room_bytes();
            filters[busy].load(&members[busy], room_bytes);
            end_windows(&members, now_us, busy);
            assert!(granted_bytes(&members) <= 64 * MIB);
        }
        for (at, memory) in members.iter().enumerate() {
            let bytes = memory.settings.budget_bytes();
            let is_right = if at == busy { bytes > 48 * MIB } else { bytes < FLOOR + (64 << 10) };
            assert!(is_right, "database {at} of the busy {busy} may hold {bytes} bytes");
        }
        busy = (busy + 1) % 3;
    }
}

#[test]
fn ledgers_together_stay_within_a_shared_budget_whatever_is_charged() {
    let seed = 0x5eed;
    let mut state = seed;
    let mut below = |bound: u64| {
        state = u64::wrapping_mul(state, 6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound.max(1)
    };
    let budget = Budget::new(48 * MIB);
    let total = |members: &[(MemoryManager, Arc<Filters>, Charge)]| {
        members.iter().map(|(memory, ..)| memory.ledger().total()).sum::<u64>()
    };
    let mut members = Vec::new();
    for step in 0..20_000u64 {
        let at = below(members.len() as u64) as usize;
        match below(40) {
            0 if members.len() < 8 => {
                let memory = in_budget(&budget);
                let filters = Filters::of(&memory, 0, 0);
                let charge = memtables(&memory);
                members.push((memory, filters, charge));
            }
            1 if members.len() > 1 => {
                let (memory, filters, charge) = members.swap_remove(at);
                drop((filters, charge, memory));
            }
            _ => {}
        }
        let at = below(members.len() as u64) as usize;
        let Some((memory, filters, charge)) = members.get_mut(at) else { continue };
        match below(5) {
            // As the writer does, and as a flush does after it.
            0 | 1 => memory.charge(charge, below(memory.settings.memtable_bytes() * 2)),
            2 => filters.load(memory, below(memory.consumers_room_bytes() + 1)),
            3 => {
                if let Some(job) = memory.reserve(below(8 * MIB)) {
                    memory.balance();
                    let mut building = Charge::new(memory.ledger(), LedgerPart::WriteBuffers, 0);
                    memory.charge(&mut building, below(job.bytes() + 1));
                }
            }
            _ => {
                if memory.follow_budget() {
                    charge.resize(0);
                }
            }
        }
        let bytes = total(&members);
        assert!(bytes <= 48 * MIB, "seed {seed}, step {step}: {bytes} bytes of {} databases", members.len());
    }
}
