//! Repairs of FIFO keyspaces: no older version comes back, and the order of ages stays.

use std::collections::BTreeMap;

use shamba::env::{Rng, SeededRng};
use shamba::{Db, Fifo, repair};

use crate::fifo::{DIR, builder, environment, limited};

/// In a keyspace that had levels before it had limits, newer entries may lie below older ones.
#[test]
fn a_repair_of_a_keyspace_that_had_levels_brings_nothing_back() {
    let mut tables = 0;
    for seed in 0..6 {
        println!("seed {seed}");
        let env = environment(seed);
        let rng = SeededRng::new(seed);
        let below = |sides: u64| rng.next_u64() % sides;
        let levels =
            || builder(&env).size_ratio(3.0).write_buffer(4 << 10).experimental(|e| e.file_size(4 << 10));
        let db = levels().open().expect("opens");
        let log = db.create_keyspace("log").expect("made");
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        // Regions are written one after the other, so that their parts of a level come to the next
        // one at different times.
        for step in 0..6_000u64 {
            let key = format!("key {:04}", 400 * (step / 600 % 5) + below(600)).into_bytes();
            if below(8) == 0 {
                log.delete(&key).expect("deleted");
                model.remove(&key);
            } else {
                let value = [step.to_be_bytes().to_vec(), vec![b'v'; below(300) as usize]].concat();
                log.put(&key, &value).expect("written");
                model.insert(key, value);
            }
        }
        drop(log);
        db.flush().expect("flushed");
        db.wait_idle().expect("idle");
        let log = db.keyspace_with("log", limited(1 << 40)).expect("limited");
        tables += log.stats().levels.iter().map(|level| level.tables).sum::<u64>();
        drop((log, db));
        let report = repair(&env, DIR.as_ref(), "/repaired".as_ref()).expect("repaired");
        assert!(report.is_complete(), "{report:?}");
        let db = Db::builder("/repaired").env(env.clone()).info_log(false).open().expect("opens");
        let log = db.keyspace("log").expect("there");
        assert!(log.fifo().is_some());
        let found: BTreeMap<Vec<u8>, Vec<u8>> =
            log.iter().map(|entry| entry.expect("read")).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        assert_eq!(found, model);
    }
    assert!(tables > 100, "{tables} tables");
}

/// A repair keeps the order of ages, also of what is only in the log, and brings nothing back that
/// was deleted or overwritten.
#[test]
fn a_repair_keeps_the_newest_data_and_brings_nothing_back() {
    let (mut dropped, mut kept, mut newest) = (0, 0, 0);
    for seed in 0..12 {
        println!("seed {seed}");
        let env = environment(seed);
        let rng = SeededRng::new(seed);
        let below = |sides: u64| rng.next_u64() % sides;
        let limit = [12_000, 1 << 20][seed as usize % 2];
        let db = builder(&env).keyspace("log", limited(limit)).open().expect("opens");
        let log = db.keyspace("log").expect("made");
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut since_flush: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for step in 0..300u64 {
            // Older keys sort behind newer ones.
            let key = format!("key {:03}", 300 - below(step + 1)).into_bytes();
            match below(30) {
                0..26 => {
                    let value = [step.to_be_bytes().to_vec(), vec![b'v'; below(400) as usize]].concat();
                    log.put(&key, &value).expect("written");
                    model.insert(key.clone(), value.clone());
                    since_flush.insert(key, value);
                }
                26 => {
                    log.delete(&key).expect("deleted");
                    model.remove(&key);
                    since_flush.remove(&key);
                }
                27 => {
                    let end = [&key[..], b"~"].concat();
                    log.delete_range(key.clone()..end.clone()).expect("deleted");
                    model.retain(|other, _| !(key <= *other && *other < end));
                    since_flush.retain(|other, _| !(key <= *other && *other < end));
                }
                _ => {
                    db.flush().expect("flushed");
                    since_flush.clear();
                }
            }
        }
        drop((log, db));
        repair(&env, DIR.as_ref(), "/repaired".as_ref()).expect("repaired");
        let db = Db::builder("/repaired").env(env.clone()).info_log(false).open().expect("opens");
        let log = db.keyspace("log").expect("there");
        assert_eq!(log.fifo(), Some(Fifo::bytes(limit)));
        // A flush drops what is too much.
        log.put("later", "value").expect("written");
        db.flush().expect("flushed");
        db.wait_idle().expect("idle");
        log.delete("later").expect("deleted");
        let found: BTreeMap<Vec<u8>, Vec<u8>> =
            log.iter().map(|entry| entry.expect("read")).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        for (key, value) in &found {
            assert_eq!(model.get(key), Some(value), "{} came back", key.escape_ascii());
        }
        let newest_bytes: usize = since_flush.values().map(|value| value.len() + 30).sum();
        if newest_bytes < 10_000 {
            for key in since_flush.keys() {
                assert!(found.contains_key(key), "{} is among the newest", key.escape_ascii());
            }
            newest += since_flush.len();
        }
        if limit > 12_000 {
            assert_eq!(found, model);
        }
        dropped += model.len() - found.len();
        kept += found.len();
    }
    assert!(dropped > 50 && kept > 500 && newest > 50, "{dropped} dropped, {kept} kept, {newest} newest");
}
