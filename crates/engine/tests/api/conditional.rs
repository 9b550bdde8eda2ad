//! Conditional writes: their outcomes compared with a model, and many threads that change the same
//! keys.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba::{Durability, ErrorKind, Swap, WriteOptions};

use super::support::{open, open_threaded};

#[test]
fn outcomes_are_those_of_a_map() {
    for seed in 0..16 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let db = open(seed);
        let other = db.keyspace("other").expect("a keyspace");
        let mut model: BTreeMap<(bool, u8), Vec<u8>> = BTreeMap::new();
        for step in 0..2_000 {
            let place = (rng.bool(), rng.u8(..12));
            let key = [place.1];
            let now = model.get(&place).cloned();
            let value = vec![rng.u8(..4); rng.usize(..40)];
            let new = rng.bool().then_some(&value);
            match rng.u8(..10) {
                0..4 => {
                    // Now and then what is expected is right.
                    let guess =
                        if rng.bool() { now.clone() } else { rng.bool().then(|| vec![rng.u8(..4); 3]) };
                    let new = new.map(Vec::as_slice);
                    let swap = match place.0 {
                        false => db.compare_and_swap(key, guess.as_deref(), new),
                        true => other.compare_and_swap(key, guess.as_deref(), new),
                    };
                    let swap = swap.expect("no failure");
                    if guess == now {
                        assert_eq!(swap, Swap::Done, "seed {seed}, step {step}");
                        set(&mut model, place, new.map(<[u8]>::to_vec));
                    } else {
                        let Swap::Mismatch(current) = swap else {
                            panic!("seed {seed}, step {step}: {swap:?}")
                        };
                        assert_eq!(current.as_deref(), now.as_deref(), "seed {seed}, step {step}");
                    }
                }
                4..6 => {
                    let swap = match place.0 {
                        false => db.put_if_absent(key, &value),
                        true => other.put_if_absent(key, &value),
                    };
                    assert_eq!(
                        swap.expect("no failure").is_done(),
                        now.is_none(),
                        "seed {seed}, step {step}"
                    );
                    model.entry(place).or_insert(value);
                }
                6..8 => {
                    let mut seen = None;
                    let change = |old: Option<&[u8]>| {
                        seen = Some(old.map(<[u8]>::to_vec));
                        new
                    };
                    match place.0 {
                        false => db.update(key, change),
                        true => other.update(key, change),
                    }
                    .expect("no failure");
                    assert_eq!(seen, Some(now), "seed {seed}, step {step}");
                    set(&mut model, place, new.cloned());
                }
                8 => {
                    let (from, to) = (rng.u8(..12), rng.u8(..12));
                    db.delete_range([from]..[to]).expect("no failure");
                    model.retain(|(other, key), _| *other || !(from..to.max(from)).contains(key));
                }
                _ if rng.u8(..8) == 0 => db.compact().expect("no failure"),
                _ => db.flush().expect("no failure"),
            }
        }
        for (at, keyspace) in [(false, db.iter()), (true, other.iter())] {
            let held = keyspace.map(|entry| entry.expect("readable"));
            let held: Vec<(u8, Vec<u8>)> = held.map(|(key, value)| (key[0], value.to_vec())).collect();
            let expected = model.iter().filter(|((other, _), _)| *other == at);
            let expected: Vec<(u8, Vec<u8>)> =
                expected.map(|((_, key), value)| (*key, value.clone())).collect();
            assert_eq!(held, expected, "seed {seed}");
        }
    }
}

fn set(model: &mut BTreeMap<(bool, u8), Vec<u8>>, place: (bool, u8), value: Option<Vec<u8>>) {
    match value {
        Some(value) => _ = model.insert(place, value),
        None => _ = model.remove(&place),
    }
}

fn number(bytes: Option<&[u8]>) -> u64 {
    bytes.map_or(0, |bytes| u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")))
}

#[test]
fn no_increment_is_lost() {
    const THREADS: u64 = 4;
    const TIMES: u64 = 2_000;
    let db = open_threaded();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let db = &db;
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread);
                for time in 0..TIMES {
                    let key = [rng.u8(..3)];
                    // Values of some length, so that memtables are flushed all the time.
                    let padded = |old: u64| [&(old + 1).to_le_bytes()[..], &[7; 60]].concat();
                    if rng.bool() {
                        db.update(key, |old| Some(padded(number(old)))).expect("no failure");
                    } else {
                        let mut old = db.get(key).expect("read");
                        while let Swap::Mismatch(current) = db
                            .compare_and_swap(key, old.as_deref(), Some(&padded(number(old.as_deref()))))
                            .expect("no failure")
                        {
                            old = current;
                        }
                    }
                    // Plain writes of another key end up in the same groups.
                    db.put([100 + thread as u8], time.to_le_bytes()).expect("no failure");
                }
            });
        }
    });
    let sum: u64 = (0..3).map(|key| number(db.get([key]).expect("read").as_deref())).sum();
    assert_eq!(sum, THREADS * TIMES);
}

#[test]
fn of_many_that_put_an_absent_key_one_succeeds() {
    let db = open_threaded();
    for round in 0..200u32 {
        let winners = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let (db, winners) = (&db, &winners);
                scope.spawn(move || {
                    if db.put_if_absent(round.to_be_bytes(), [thread]).expect("no failure").is_done() {
                        winners.fetch_add(1 << (8 * thread), Ordering::Relaxed);
                    }
                });
            }
        });
        let winner = winners.into_inner();
        let value = db.get(round.to_be_bytes()).expect("read").expect("somebody put it");
        assert_eq!(winner, 1 << (8 * value[0]), "round {round}");
    }
}

#[test]
fn options_and_failures_are_those_of_other_writes() {
    let db = open(1);
    assert!(db.put_if_absent_with("a", "1", Durability::Sync).expect("stored").is_done());
    let sync = WriteOptions::new().durability(Durability::Sync);
    assert!(db.compare_and_swap_with("a", Some(b"1"), Some(b"2"), sync).expect("stored").is_done());
    db.update_with("a", |_| None::<&[u8]>, sync).expect("removed");
    assert_eq!(db.get("a").expect("read"), None);
    // Nothing is written for a key that has no value and gets none.
    let before = db.stats().batches;
    db.update("a", |_| None::<&[u8]>).expect("nothing to do");
    assert_eq!(db.stats().batches, before);
    let long = vec![0; 65_536];
    assert_eq!(db.put_if_absent(&long, "").map_err(|error| error.kind()), Err(ErrorKind::Invalid));
    let other = db.keyspace("other").expect("a keyspace");
    db.drop_keyspace("other").expect("dropped");
    assert!(other.put_if_absent("a", "").is_err());
    db.clone().close().expect("closed");
    assert_eq!(db.put_if_absent("a", "").map_err(|error| error.kind()), Err(ErrorKind::Closed));
}
