//! The cache against a model, and its rules one by one.

use std::collections::BTreeMap;
use std::sync::Arc;

use shamba_key::{DigestFn, DigestKind};
use shamba_table::{Ledger, LedgerPart};

use super::*;

const KEYSPACE: KeyspaceId = KeyspaceId(3);
const ROOMY_BYTES: usize = 1 << 20;

fn digest(key: &[u8]) -> KeyDigest {
    DigestFn::new(DigestKind::Xxh3, 7).digest(key)
}

fn charge(ledger: &Arc<Ledger>) -> Charge {
    Charge::new(ledger, LedgerPart::Records, 0)
}

fn cache(capacity_bytes: usize) -> RecordCache {
    let cache = RecordCache::new(charge(&Arc::default()), capacity_bytes);
    cache.set_capacity(capacity_bytes, 1);
    cache
}

fn reader(cache: &RecordCache) -> RecordAccess<'_> {
    cache.access(true).expect("a cache with capacity")
}

fn write(cache: &RecordCache, key: &str, seq: u64, value: Option<&str>) {
    let key = key.as_bytes();
    reader(cache).write(
        KEYSPACE,
        (digest(key), key),
        (SeqNo(seq), value.map(|value| (EntryKind::Put, value.as_bytes()))),
        0,
    );
}

/// The answer for a reader at `seq` with `floor`, as text.
fn asked(access: RecordAccess<'_>, key: &str, seq: u64, floor: u64) -> String {
    let key = key.as_bytes();
    match access.ask(KEYSPACE, digest(key), key, (SeqNo(seq), SeqNo(floor))) {
        Cached::Value { seq, value, .. } => format!("{}@{}", value.escape_ascii(), seq.0),
        Cached::Absent { seq: SeqNo::ZERO, .. } => "absent".to_owned(),
        Cached::Absent { seq, is_tombstone } => {
            format!("{}@{}", if is_tombstone { "tombstone" } else { "hidden" }, seq.0)
        }
        Cached::Unknown { is_wanted } => if is_wanted { "wanted" } else { "unknown" }.to_owned(),
    }
}

#[test]
fn a_key_is_wanted_when_it_is_asked_for_again() {
    let cache = cache(ROOMY_BYTES);
    assert_eq!(asked(reader(&cache), "k", 9, 0), "unknown");
    assert_eq!(asked(reader(&cache), "k", 9, 0), "wanted");
    write(&cache, "k", 5, Some("v"));
    assert_eq!(asked(reader(&cache), "k", 9, 0), "v@5");
    let at_snapshot = cache.access(false).expect("a cache with capacity");
    assert_eq!(asked(at_snapshot, "other", 9, 0), "unknown");
    assert_eq!(asked(at_snapshot, "other", 9, 0), "unknown", "a reader at a snapshot cannot write");
}

#[test]
fn a_record_is_for_readers_that_see_its_entry() {
    let cache = cache(ROOMY_BYTES);
    write(&cache, "put", 5, Some("v"));
    write(&cache, "gone", 5, None);
    write(&cache, "never", 0, None);
    for (seq, put, gone) in [(4, "unknown", "unknown"), (5, "v@5", "tombstone@5"), (9, "v@5", "tombstone@5")]
    {
        assert_eq!(asked(reader(&cache), "put", seq, 0), put, "at {seq}");
        assert_eq!(asked(reader(&cache), "gone", seq, 0), gone, "at {seq}");
        assert_eq!(asked(reader(&cache), "never", seq, 0), "absent", "at {seq}");
    }
    assert_eq!(asked(reader(&cache), "put", 9, 4), "v@5", "an older range tombstone");
    assert_eq!(asked(reader(&cache), "put", 9, 5), "hidden@5", "a range tombstone over the entry");
}

#[test]
fn an_edit_erases_and_refuses() {
    let cache = cache(ROOMY_BYTES);
    ["a", "b", "c"].iter().for_each(|key| write(&cache, key, 5, Some("old")));
    let early = reader(&cache);
    let edit = cache.begin_edit();
    let during = reader(&cache);
    edit.erase(digest(b"a"));
    edit.erase_where(KeyspaceId(4), |_| true);
    edit.erase_where(KEYSPACE, |key| (&b"b"[..]..&b"c"[..]).contains(&key));
    assert_eq!(["a", "b", "c"].map(|key| asked(early, key, 9, 0)), ["unknown", "unknown", "old@5"]);
    write(&cache, "a", 6, Some("while it is under way"));
    drop(edit);
    for stale in [early, during] {
        stale.write(KEYSPACE, (digest(b"a"), b"a"), (SeqNo(5), Some((EntryKind::Put, b"old"))), 0);
    }
    assert!(!asked(reader(&cache), "a", 9, 0).contains('@'), "a record of before the edit");
    write(&cache, "a", 6, Some("new"));
    assert_eq!(asked(reader(&cache), "a", 9, 0), "new@6");
    // Its view may be older than the edit, so it must not see one key as of later than the others.
    assert_eq!(asked(early, "a", 9, 0), "unknown");
    assert_eq!(asked(during, "a", 9, 0), "unknown");
}

#[test]
fn no_record_is_written_until_all_edits_have_ended() {
    let cache = cache(ROOMY_BYTES);
    let first = cache.begin_edit();
    let second = cache.begin_edit();
    drop(second);
    write(&cache, "k", 5, Some("v"));
    assert_eq!(cache.records(), 0);
    drop(first);
    write(&cache, "k", 5, Some("v"));
    assert_eq!(cache.records(), 1);
}

#[test]
fn without_capacity_it_holds_nothing() {
    let ledger = Arc::new(Ledger::new());
    let cache = RecordCache::new(charge(&ledger), ROOMY_BYTES);
    assert!(cache.access(true).is_none());
    cache.set_capacity(1, 1);
    assert!(cache.access(true).is_none(), "too little for a chunk");
    cache.set_capacity(ROOMY_BYTES, 1);
    assert_eq!(ledger.bytes(LedgerPart::Records), ROOMY_BYTES as u64);
    write(&cache, "k", 5, Some("v"));
    let late = reader(&cache);
    cache.set_capacity(0, 1);
    assert_eq!((cache.records(), cache.held_bytes()), (0, 0));
    assert_eq!(ledger.total(), 0);
    late.write(KEYSPACE, (digest(b"k"), b"k"), (SeqNo(5), Some((EntryKind::Put, b"v"))), 0);
    assert_eq!((cache.records(), cache.held_bytes()), (0, 0), "a reader that was late");
}

#[test]
fn a_record_that_is_too_long_is_not_kept() {
    let cache = cache(ROOMY_BYTES);
    write(&cache, "k", 5, Some(&"v".repeat(4000)));
    assert_eq!(cache.records(), 0);
    write(&cache, &"k".repeat(4000), 5, None);
    assert_eq!(cache.records(), 0);
    let longest = "v".repeat(1900);
    write(&cache, "k", 5, Some(&longest));
    assert_eq!(asked(reader(&cache), "k", 9, 0), format!("{longest}@5"));
}

/// All keys have one of sixteen digests, so tags say little and every key must be compared.
#[test]
fn equal_digests_are_not_equal_keys() {
    let cache = cache(ROOMY_BYTES);
    let digest = |number: u64| KeyDigest::from_raw(number % 16);
    for number in 0..200u64 {
        let key = number.to_be_bytes();
        reader(&cache).write(
            KEYSPACE,
            (digest(number), &key),
            (SeqNo(number + 1), Some((EntryKind::Put, &key))),
            0,
        );
    }
    for number in 0..200u64 {
        let key = number.to_be_bytes();
        let answer = reader(&cache).ask(KEYSPACE, digest(number), &key, (SeqNo(999), SeqNo::ZERO));
        let Cached::Value { seq, value, .. } = answer else { panic!("key {number} is {answer:?}") };
        assert_eq!((seq.0, value.as_ref()), (number + 1, key.as_ref()));
        let elsewhere = reader(&cache).ask(KeyspaceId(4), digest(number), &key, (SeqNo(999), SeqNo::ZERO));
        assert!(matches!(elsewhere, Cached::Unknown { .. }), "key {number} of another keyspace");
    }
}

#[test]
fn records_in_use_outlive_others() {
    let cache = cache(256 << 10);
    let hot: Vec<String> = (0..100).map(|number| format!("hot{number}")).collect();
    hot.iter().for_each(|key| write(&cache, key, 1, Some("hot")));
    for number in 0..20_000 {
        write(&cache, &format!("cold{number}"), 1, Some(&"v".repeat(100)));
        let key = &hot[number % hot.len()];
        assert_eq!(asked(reader(&cache), key, 9, 0), "hot@1", "after {number} others");
    }
    assert!(cache.held_bytes() <= cache.capacity_bytes());
}

/// Random edits, readers with older views, and capacities. A record may be gone at any time, but
/// what a reader gets is what its view holds.
#[test]
fn answers_are_those_of_the_views() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let cache = cache(512 << 10);
    // For each number of ended edits, the newest entry of each key.
    let mut states: Vec<BTreeMap<u32, (u64, Option<String>)>> = vec![BTreeMap::new()];
    let (mut seq, mut answered) = (0, 0);
    let mut readers = Vec::new();
    for step in 0..60_000 {
        match random.u32(0..1000) {
            0..5 => {
                let edit = cache.begin_edit();
                let mut state = states.last().expect("a first state").clone();
                if random.u32(0..4) == 0 {
                    let (from, to) = (random.u32(0..3000), random.u32(0..3000));
                    let bound = |key: u32| key.to_be_bytes().to_vec();
                    let (lower, upper) = (bound(from), bound(to));
                    edit.erase_where(KEYSPACE, |key| (&lower[..]..&upper[..]).contains(&key));
                    seq += 1;
                    state.iter_mut().filter(|(key, _)| (from..to.max(from)).contains(key)).for_each(
                        |(_, entry)| {
                            *entry = (seq, None);
                        },
                    );
                } else {
                    for _ in 0..random.u32(1..200) {
                        let key = random.u32(0..3000);
                        edit.erase(digest(&key.to_be_bytes()));
                        seq += 1;
                        let value = "v".repeat(random.usize(0..200));
                        state.insert(key, (seq, random.bool().then_some(value)));
                    }
                }
                drop(edit);
                states.push(state);
            }
            5..8 => cache.set_capacity(random.usize(1..1 << 20), 1),
            8..200 => readers.extend(cache.access(true).map(|access| (access, states.len() - 1, seq))),
            _ => {}
        }
        if step % 1000 == 0 {
            readers.clear();
        }
        let Some(&(access, state, seq)) = random.choice(readers.iter()) else { continue };
        let key = random.u32(0..3000);
        let (bytes, entry) = (key.to_be_bytes(), states[state].get(&key));
        match access.ask(KEYSPACE, digest(&bytes), &bytes, (SeqNo(seq), SeqNo::ZERO)) {
            Cached::Unknown { .. } => {
                let (seq, value) = entry.cloned().unwrap_or((0, None));
                let value = value.as_deref().map(str::as_bytes);
                access.write(
                    KEYSPACE,
                    (digest(&bytes), &bytes),
                    (SeqNo(seq), value.map(|value| (EntryKind::Put, value))),
                    0,
                );
            }
            Cached::Value { seq, value, .. } => {
                let expected = entry.and_then(|(at, value)| Some((*at, value.as_deref()?.as_bytes())));
                assert_eq!(Some((seq.0, value.as_ref())), expected, "step {step}, key {key}");
                answered += 1;
            }
            Cached::Absent { .. } => {
                assert!(
                    entry.is_none_or(|(_, value)| value.is_none()),
                    "step {step}: key {key} is {entry:?}"
                );
                answered += 1;
            }
        }
        assert!(step % 97 != 0 || cache.held_bytes() <= cache.capacity_bytes().max(1 << 20));
    }
    assert!(answered > 1000, "{answered} answers of the cache");
}

/// A small cache that covers one key in eight is hit as often, of what it is asked, as one of eight
/// times its size.
#[test]
fn a_cache_that_covers_a_part_of_the_keys_is_a_model_of_a_larger_one() {
    let share = |one_in: u32| {
        let capacity_bytes = 8 * CAPACITY_MIN_BYTES / one_in as usize;
        let cache = cache(capacity_bytes);
        cache.set_capacity(capacity_bytes, one_in);
        let mut random = 1u64;
        for _ in 0..200_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // The square makes low numbers frequent.
            let number = (((random >> 48) * (random >> 48)) >> 18).to_le_bytes();
            let access = reader(&cache);
            if let Cached::Unknown { is_wanted: true } =
                access.ask(KEYSPACE, digest(&number), &number, (SeqNo(1), SeqNo::ZERO))
            {
                access.write(
                    KEYSPACE,
                    (digest(&number), &number),
                    (SeqNo(1), Some((EntryKind::Put, &[7; 100]))),
                    1,
                );
            }
        }
        let (asked, remembered_bytes) = cache.asked();
        assert_eq!(asked.repeats, asked.repeat_reads, "each repeat read once");
        assert!(asked.hits > 1_000 && remembered_bytes > 0, "{asked:?}");
        (asked.lookups, asked.hits as f64 / asked.lookups as f64)
    };
    let ((all, whole), (part, sampled)) = (share(1), share(8));
    assert_eq!(all, 200_000);
    assert!((all / 16..all / 4).contains(&part), "{part} of {all} lookups were asked");
    assert!((whole - sampled).abs() < 0.1, "{whole:.3} of all lookups are hits, {sampled:.3} of a sample");
}

/// Otherwise one of two calls at once could set the capacity, and the other one the cover.
#[test]
fn the_cover_changes_with_the_capacity_under_one_lock() {
    let (small, large) = (2 * CAPACITY_MIN_BYTES, 8 * CAPACITY_MIN_BYTES);
    let cache = cache(large);
    std::thread::scope(|scope| {
        let other_call = lock(&cache.charge);
        let call = scope.spawn(|| cache.set_capacity(small, 8));
        // Time in which the thread comes to the lock.
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!cache.is_sample() && cache.capacity_bytes() == large, "half of it is set");
        drop(other_call);
        call.join().expect("no panic");
        assert!(cache.is_sample() && cache.capacity_bytes() == small);
    });
}
