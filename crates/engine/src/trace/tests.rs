//! Tests of recordings: every operation of every handle is recorded, the recorded results are right
//! at their place, and no operation fails because of a recording.

use std::collections::BTreeMap;
use std::sync::Mutex as StdMutex;
use std::time::Duration;

use shamba_env::{Effect, Env, FaultFs, FaultRule, MemFs, OpKind, lock, read_file};

use super::*;
use crate::error::ErrorKind;
use crate::event::{Event, EventListener};
use crate::{Builder, Db, WriteOptions};

const TRACE: &str = "/trace";

fn builder(vfs: Arc<dyn shamba_env::Vfs>) -> Builder {
    Db::builder("/db").env(Env::deterministic(vfs, 7)).write_buffer(64 << 10).info_log(false)
}

fn text(vfs: &dyn shamba_env::Vfs) -> String {
    String::from_utf8(read_file(vfs, Path::new(TRACE)).expect("there")).expect("traces are ASCII")
}

#[test]
fn the_example_of_the_format_page() {
    let vfs = Arc::new(MemFs::new());
    let db = builder(vfs.clone()).open().expect("opened");
    db.put("before", "it").expect("written");
    let recording = db.record_trace(TRACE).expect("begun");
    let users = db.keyspace("users").expect("made");
    db.put("ada", "lovelace").expect("written");
    db.get("ada").expect("read");
    db.contains_key("bob").expect("read");
    let old = db.snapshot();
    let mut batch = db.batch();
    batch.put("käse", vec![0; 1000]).put_in(&users, "1", "Asha").delete("ada");
    batch.commit().expect("written");
    old.get("ada").expect("read");
    db.multi_get(["ada", "käse"]).expect("read");
    db.delete_range("c".."d").expect("written");
    db.delete_range("x"..).expect("written");
    assert_eq!(db.range("b"..).take(5).count(), 2);
    assert_eq!(db.iter().rev().take(1).count(), 1);
    let mut cursor = users.cursor();
    assert!(cursor.seek("1").expect("read"));
    drop(cursor);
    db.ingest([("y", "1"), ("z", "2")]).expect("added");
    db.drop_keyspace("users").expect("dropped");
    db.get("").expect("read");
    let recorded = recording.finish().expect("written");
    let text = text(vfs.as_ref());
    assert_eq!((recorded.operations, recorded.bytes), (16, text.len() as u64));
    let page = include_str!("../../../../docs/formats/trace.md");
    assert!(page.contains(&text), "docs/formats/trace.md lacks this:\n{text}");
}

/// A key without an expiry is there, also for a lookup of its expiry.
#[test]
fn lookups_of_an_expiry_are_recorded_with_their_answers() {
    let disk = Arc::new(MemFs::new());
    let db = builder(disk.clone()).open().expect("opened");
    db.put_with("soon", "v", WriteOptions::new().time_to_live(Duration::from_secs(9))).expect("written");
    db.put("lasting", "v").expect("written");
    let recording = db.record_trace("/trace").expect("begun");
    for key in ["lasting", "soon", "absent"] {
        let (expiry_ms, left) = (db.expiry_ms_of(key).expect("read"), db.time_to_live_of(key).expect("read"));
        assert_eq!((expiry_ms.is_some(), left.is_some()), (key == "soon", key != "absent"), "{key}");
    }
    recording.finish().expect("finished");
    let lines = text(disk.as_ref());
    assert!(
        lines.contains("Q lasting +\nQ lasting +\nQ soon +\nQ soon +\nQ absent -\nQ absent -\n"),
        "{lines}"
    );
}

#[test]
fn one_recording_at_a_time_and_never_over_a_file() {
    let vfs = Arc::new(MemFs::new());
    let db = builder(vfs.clone()).open().expect("opened");
    let recording = db.record_trace(TRACE).expect("begun");
    let error = db.record_trace("/other").expect_err("one is being recorded");
    assert_eq!((error.kind(), error.to_string().contains(TRACE)), (ErrorKind::Invalid, true), "{error:?}");
    drop(recording);
    let whole = text(vfs.as_ref());
    assert_eq!(whole, "# shamba trace 1\n# end 0\n");
    assert_eq!(db.record_trace(TRACE).expect_err("there already").kind(), ErrorKind::Io);
    db.put("k", "v").expect("written");
    assert_eq!(text(vfs.as_ref()), whole, "nothing is recorded any more");
    let again = db.record_trace("/other").expect("begun");
    let clone = db.clone();
    db.close().expect("closed");
    assert_eq!(clone.get("k").expect_err("closed").kind(), ErrorKind::Closed);
    assert_eq!(again.finish().expect("written").operations, 0, "what failed is not recorded");
}

#[derive(Default)]
struct Warnings(StdMutex<Vec<String>>);

impl EventListener for Warnings {
    fn event(&self, event: &Event) {
        if let Event::Warning(text) = event {
            lock(&self.0).push(text.clone());
        }
    }
}

#[test]
fn a_trace_that_cannot_be_written_fails_no_operation() {
    for (number, (kind, effect)) in
        [(OpKind::Append, Effect::Enospc), (OpKind::Append, Effect::Eio), (OpKind::SyncAll, Effect::Eio)]
            .into_iter()
            .enumerate()
    {
        let faults = FaultFs::new(Arc::new(MemFs::new()), 1);
        let warnings = Arc::new(Warnings::default());
        let db = builder(Arc::new(faults.clone())).event_listener(warnings.clone()).open().expect("opened");
        let recording = db.record_trace(TRACE).expect("begun");
        faults.add_rule(FaultRule::nth(0, effect).on(&[kind]).at_path(TRACE).sticky());
        for key in 0..10_000u32 {
            db.put(key.to_be_bytes(), "v").expect("written");
            assert!(db.contains_key(key.to_be_bytes()).expect("read"));
        }
        let ended_early = kind == OpKind::Append;
        assert_eq!(db.core().recorder.is_on(), !ended_early);
        let said = std::mem::take(&mut *lock(&warnings.0));
        assert_eq!(said.len(), usize::from(ended_early), "case {number}: {said:?}");
        assert!(said.iter().all(|text| text.contains(TRACE)), "{said:?}");
        let error = recording.finish().expect_err("it is not whole");
        let expected = if effect == Effect::Enospc { ErrorKind::NoSpace } else { ErrorKind::Io };
        assert_eq!(error.kind(), expected, "case {number}: {error:?}");
        assert!(faults.faults_injected() > 0);
        let error = db.record_trace("/no/such/folder/trace").expect_err("cannot be made");
        assert_eq!(error.kind(), ErrorKind::Io, "{error:?}");
        let dropped = db.record_trace("/another").expect("a recording that failed is over");
        faults.clear_rules();
        drop(dropped);
    }
}

/// Replays a trace line by line against a map, and checks the recorded results.
fn check_answers(text: &str) -> (usize, BTreeMap<Vec<u8>, usize>) {
    let mut content = BTreeMap::new();
    let mut answered = 0;
    for line in text.lines() {
        match Line::parse(line.as_bytes()).unwrap_or_else(|reason| panic!("{line}: {reason}")) {
            Line::Insert { key, value } => _ = content.insert(key.into_owned(), value.len()),
            Line::Delete { key } => _ = content.remove(&*key),
            Line::DeleteUpTo { from, to } => {
                content.retain(|key: &Vec<u8>, _| {
                    key.as_slice() < &*from || to.as_ref().is_some_and(|to| key.as_slice() >= &**to)
                });
            }
            Line::Get { key, found: Some(found) } => {
                assert_eq!(content.contains_key(&*key), found, "{line}");
                answered += 1;
            }
            _ => {}
        }
    }
    (answered, content)
}

#[test]
fn answers_are_true_where_they_stand_whoever_writes_meanwhile() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 3_000;
    let vfs = Arc::new(MemFs::new());
    let env = Env { vfs: vfs.clone(), ..Env::real() };
    let db = builder(vfs.clone()).env(env).open().expect("opened");
    let recording = db.record_trace(TRACE).expect("begun");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let db = &db;
            scope.spawn(move || {
                let mut state = thread + 1;
                for _ in 0..ROUNDS {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let key = [b'a' + (state >> 40) as u8 % 16];
                    match (state >> 60) % 8 {
                        0 | 1 => db.put(key, vec![1; (state >> 50) as usize % 9]).expect("written"),
                        2 => db.delete(key).expect("written"),
                        3 if (state >> 33).is_multiple_of(8) => {
                            db.delete_range(key..[key[0] + 3]).expect("written")
                        }
                        4 => _ = db.multi_get([key, *b"a"]).expect("read"),
                        _ => _ = db.get(key).expect("read"),
                    }
                }
            });
        }
    });
    let recorded = recording.finish().expect("written");
    let text = text(vfs.as_ref());
    let (answered, content) = check_answers(&text);
    assert!(answered as u64 > ROUNDS / 4, "{answered} answers among {} operations", recorded.operations);
    let held: BTreeMap<Vec<u8>, usize> =
        db.iter().map(|entry| entry.map(|(key, value)| (key.to_vec(), value.len())).expect("read")).collect();
    assert_eq!(held, content, "the trace leaves what the database holds");
}

#[test]
fn scans_tell_where_they_began_and_what_they_read() {
    let vfs = Arc::new(MemFs::new());
    let db = builder(vfs.clone()).open().expect("opened");
    for key in 0..1000 {
        db.put(format!("{key:03}"), "v").expect("written");
    }
    let before = db.iter();
    let recording = db.record_trace(TRACE).expect("begun");
    let unwalked = db.range("5".."6");
    assert_eq!(before.count(), 1000);
    assert_eq!(db.range("100".."200").count(), 100);
    assert_eq!(db.prefix("7").rev().take(70).count(), 70);
    assert_eq!(db.range("5x"..="5y").count(), 0);
    let mut both = db.range("000".."010");
    assert!(both.next().is_some() && both.next_back().is_some() && both.next_back().is_some());
    drop(both);
    let mut cursor = db.cursor();
    cursor.seek("300").expect("read");
    for _ in 0..200 {
        cursor.next().expect("read");
    }
    cursor.seek_for_prev("299x").expect("read");
    cursor.prev().expect("read");
    cursor.seek_to_last().expect("read");
    assert!(!cursor.next().expect("read"));
    drop(cursor);
    drop(unwalked);
    let late = db.iter();
    recording.finish().expect("written");
    assert_eq!(late.count(), 1000);
    let text = text(vfs.as_ref());
    let scans: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(
        scans,
        [
            "N 100 100",
            "P 799 70",
            "N 5x 0",
            "N 000 1",
            "P 009 2",
            "N 300 201",
            "P 299x 2",
            "P 999 1",
            "N 999 0"
        ]
    );
}
