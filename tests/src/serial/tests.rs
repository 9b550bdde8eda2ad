//! Histories by hand: the anomalies of the literature, each planted once, and what is correct.

use super::*;

/// One transaction: `begin-end@place`, then what it did: `r KEY VALUE` (`-` for none), `s LOW HIGH
/// KEY=VALUE ...` for a scan, `w KEY VALUE`, `d KEY`, `x LOW HIGH` for a deleted range. A place is
/// a number, `=` and the value that was replaced, or none.
fn transaction(text: &str) -> Transaction {
    let number = |word: &str| word.parse::<u64>().unwrap_or_else(|_| panic!("{word:?} in {text:?}"));
    let key = |word: &str| (0, number(word) as u32);
    let mut parts = text.split(", ");
    let head = parts.next().expect("a head");
    let (times, place) = head.split_once('@').expect("a place");
    let (begin, end) = times.split_once('-').expect("two times");
    let place = match (place, place.strip_prefix('=')) {
        ("", _) => Place::None,
        (_, Some(value)) => Place::Behind(number(value)),
        (place, None) => Place::At(number(place)),
    };
    let (mut reads, mut deleted, mut writes) = (Vec::new(), Vec::new(), Vec::new());
    for part in parts {
        let words: Vec<&str> = part.split(' ').collect();
        match words[..] {
            ["r", of, "-"] => reads.push(Read::Key(key(of), None)),
            ["r", of, value] => reads.push(Read::Key(key(of), Some(number(value)))),
            ["w", of, value] => writes.push((key(of), Some(number(value)))),
            ["d", of] => writes.push((key(of), None)),
            ["x", low, high] => deleted.push((0, key(low).1..key(high).1)),
            ["s", low, high, ref found @ ..] => {
                let pair = |pair: &&str| pair.split_once('=').map(|(of, value)| (key(of).1, number(value)));
                let found = found.iter().map(|text| pair(text).expect("a pair")).collect();
                reads.push(Read::Keys(0, key(low).1..key(high).1, found));
            }
            _ => panic!("{part:?} in {text:?}"),
        }
    }
    Transaction { begin: number(begin), end: number(end), place, reads, deleted, writes }
}

/// Whether a history is serializable, and whether it is possible under snapshot isolation.
fn verdicts(text: &[&str]) -> [Result<Checked, String>; 2] {
    let history: Vec<Transaction> = text.iter().map(|line| transaction(line)).collect();
    [Level::Serializable, Level::Snapshot].map(|level| check(&history, level))
}

/// Requires both verdicts; a refusal must contain this text.
fn judged(text: &[&str], wanted: [bool; 2], says: &str) {
    let found = verdicts(text);
    assert_eq!([found[0].is_ok(), found[1].is_ok()], wanted, "{text:?}: {found:?}");
    for refusal in found.iter().filter_map(|verdict| verdict.as_ref().err()) {
        assert!(refusal.contains(says), "{text:?}: {refusal:?} does not tell {says:?}");
    }
}

const ALLOWED: [bool; 2] = [true, true];
const ONLY_SNAPSHOT: [bool; 2] = [false, true];
const REFUSED: [bool; 2] = [false, false];

#[test]
fn correct_histories_are_accepted() {
    // One after another.
    judged(
        &[
            "0-1@1, w 1 10, w 2 20",
            "2-3@2, r 1 10, w 1 11",
            "4-5@3, s 0 9 1=11 2=20, x 0 2, w 3 30",
            "6-7@, r 1 -, s 0 9 2=20 3=30",
            "8-9@=30, r 3 30, w 3 31",
            "10-11@, s 0 9 2=20 3=31",
        ],
        ALLOWED,
        "",
    );
    // At once: the second one comes first, although it ends last.
    judged(&["0-1@1, w 1 10", "2-8@3, r 1 11, w 2 20", "2-9@2, r 1 10, w 1 11"], ALLOWED, "");
    // Absent, written, deleted: a concurrent reader may have seen either absence.
    judged(
        &["0-1@1, w 2 20", "2-9@2, w 1 10", "2-9@3, r 1 10, d 1", "2-9@, r 1 -, r 2 20", "10-11@, r 1 -"],
        ALLOWED,
        "",
    );
    // What it read of its own is no dependency.
    judged(&["0-1@1, w 1 10", "2-3@2, w 1 11, r 1 11"], ALLOWED, "");
}

#[test]
fn dirty_reads_are_refused() {
    // Of a transaction that never committed, and of a state in the middle of one.
    judged(&["0-1@1, w 1 10", "2-3@, r 1 99"], REFUSED, "dirty read");
    judged(&["0-1@1, w 1 11", "0-3@, r 1 10"], REFUSED, "dirty read");
    judged(&["0-1@1, w 1 10", "2-3@=9, r 1 9, w 1 11"], REFUSED, "dirty read");
    // Half of a transaction.
    judged(&["0-9@1, w 1 10, w 2 20", "0-9@, r 1 10, r 2 -"], REFUSED, "Wr (0, 1)");
}

#[test]
fn lost_updates_are_refused() {
    judged(&["0-1@1, w 1 10", "2-9@2, r 1 10, w 1 11", "2-9@3, r 1 10, w 1 12"], REFUSED, "Rw (0, 1)");
    judged(&["0-1@1, w 1 10", "2-9@=10, r 1 10, w 1 11", "2-9@=10, r 1 10, w 1 12"], REFUSED, "lost update");
    // A conditional write among others.
    judged(&["0-1@1, w 1 10", "2-9@=10, r 1 10, w 1 11", "2-9@3, r 1 10, w 1 12"], REFUSED, "Rw (0, 1)");
    // Of an absent key: both saw none.
    judged(&["2-9@2, r 1 -, w 1 11", "2-9@3, r 1 -, w 1 12"], REFUSED, "Rw (0, 1)");
}

#[test]
fn reads_that_do_not_repeat_are_refused() {
    judged(&["0-1@1, w 1 10", "2-9@2, w 1 11", "2-9@, r 1 10, r 1 11"], REFUSED, "Rw (0, 1)");
    judged(&["0-1@1, w 1 10", "2-9@2, d 1", "2-9@, r 1 10, r 1 -"], REFUSED, "Rw (0, 1)");
    // Read skew: two keys that were written together.
    judged(&["0-1@1, w 1 10, w 2 20", "2-9@2, w 1 11, w 2 21", "2-9@, r 1 10, r 2 21"], REFUSED, "Rw (0, 1)");
}

#[test]
fn write_skew_is_allowed_to_snapshots_only() {
    let skew = ["0-1@1, w 1 10, w 2 20", "2-9@2, r 1 10, r 2 20, w 1 11", "2-9@3, r 1 10, r 2 20, w 2 21"];
    judged(&skew, ONLY_SNAPSHOT, "Rw");
    // Of absent keys.
    judged(&["2-9@2, r 1 -, w 2 20", "2-9@3, r 2 -, w 1 10"], ONLY_SNAPSHOT, "Rw");
    // The anomaly of a reader: it sees the second of two, and not the first one, on which the
    // second depends by what it read.
    let reader = [
        "0-1@1, w 1 10, w 2 20",
        "2-9@2, r 1 10, r 2 20, w 1 11",
        "2-4@3, r 2 20, w 2 21",
        "5-6@, r 1 10, r 2 21",
    ];
    judged(&reader, ONLY_SNAPSHOT, "Rw");
}

#[test]
fn phantoms_are_allowed_to_snapshots_only() {
    let phantom = ["0-1@1, w 1 10", "2-9@2, s 0 5 1=10, w 7 70", "2-9@3, s 5 9, w 2 20"];
    judged(&phantom, ONLY_SNAPSHOT, "Rw (0, 2)");
    // A range that was deleted and one that was walked.
    let deleted = ["0-1@1, w 1 10, w 7 70", "2-9@2, s 0 5 1=10, x 5 9", "2-9@3, r 7 70, w 2 20"];
    judged(&deleted, ONLY_SNAPSHOT, "Rw (0, 2)");
    // Seen by the second scan of one transaction.
    judged(&["2-9@2, w 2 20", "2-9@, s 0 5, s 0 9 2=20"], REFUSED, "Rw (0, 2)");
}

#[test]
fn real_time_counts() {
    // An old snapshot: the write had ended.
    judged(&["0-1@1, w 1 10", "2-3@2, w 1 11", "4-5@, r 1 10"], REFUSED, "ended before");
    judged(&["0-1@1, w 1 10", "2-3@, r 1 -"], REFUSED, "absent when it was not");
    // A value of the future.
    judged(&["0-1@, r 1 10", "2-3@1, w 1 10"], REFUSED, "ended before");
    // The order of commits is not that of real time.
    judged(&["0-1@2, w 1 10", "2-3@1, w 1 11"], REFUSED, "ended before");
}

#[test]
fn a_long_fork_is_refused() {
    judged(&["0-9@1, w 1 10", "0-9@2, w 2 20", "0-9@, r 1 10, r 2 -", "0-9@, r 1 -, r 2 20"], REFUSED, "Rw");
}

#[test]
fn a_delete_that_must_have_been_seen_counts() {
    // The reader knows the second transaction by key 2. So it has seen the delete, not the first
    // absence, and the third transaction, which it knows as well, has put the key again.
    let history = [
        "0-9@1, w 1 10",
        "0-9@2, r 1 10, d 1, w 2 20",
        "0-9@3, r 1 -, r 2 20, w 1 11, w 3 30",
        "0-9@, r 1 -, r 2 20, r 3 30",
    ];
    judged(&history, REFUSED, "(0, 1)");
    // Without the last key it is right.
    let [first, second, third, _] = history;
    judged(&[first, second, third, "0-9@, r 1 -, r 2 20"], ALLOWED, "");
}

/// Random serial histories pass, whatever they do; and with one value exchanged for an older one
/// of its key few do, though never those whose reader also replaced the key.
#[test]
fn random_serial_histories_pass_and_stale_updates_do_not() {
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..200 {
        let (mut state, mut history, mut value) = (BTreeMap::new(), Vec::new(), 0);
        let mut stale = None;
        for step in 0..40_u64 {
            let (first, second, low) = (random.u32(..6), random.u32(..6), random.u32(..6));
            let mut it = transaction(&format!("{}-{}@{step}", step * 2, step * 2 + random.u64(1..9)));
            it.reads.push(Read::Key((0, first), state.get(&first).copied()));
            let found = state.range(low..6).map(|(key, value)| (*key, *value)).collect();
            it.reads.push(Read::Keys(0, low..6, found));
            if random.u8(..6) == 0 {
                it.deleted.push((0, low..low + 2));
                state.retain(|key, _| !(low..low + 2).contains(key));
            }
            value += 1;
            let new = (random.u8(..4) > 0).then_some(value);
            for key in [first, second] {
                it.writes.retain(|(of, _)| of.1 != key);
                let new = if key == first { new } else { Some(value + 1_000) };
                it.writes.push(((0, key), new));
                let old = match new {
                    Some(new) => state.insert(key, new),
                    None => state.remove(&key),
                };
                if key == first && first != second && old.is_some() {
                    stale = Some((history.len(), key, old));
                }
            }
            history.push(it);
        }
        for level in [Level::Serializable, Level::Snapshot] {
            check(&history, level).expect("a serial history");
        }
        let (last, key, old) = stale.expect("a key was replaced");
        let mut forged = history[last].clone();
        (forged.place, forged.writes) = (Place::At(1_000), vec![((0, key), Some(5_000))]);
        forged.reads = vec![Read::Key((0, key), old)];
        history.push(forged);
        for level in [Level::Serializable, Level::Snapshot] {
            check(&history, level).expect_err("it replaced what another one had replaced");
        }
    }
}
