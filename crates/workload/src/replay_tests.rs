//! Tests of replay: recorded traces on empty databases, and handwritten ones.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use shamba::env::{Env, MemFs, read_file};

use super::*;
use crate::trace::{Entries, Generator, Mix, Spread};

fn open(vfs: &Arc<MemFs>) -> Db {
    let env = Env::deterministic(vfs.clone(), 7);
    Db::builder("/db").env(env).write_buffer(64 << 10).info_log(false).open().expect("opens")
}

fn replayed(db: &Db, text: &[u8]) -> Result<(Meter, Answers), Error> {
    let values = Values::new(0, 1);
    let mut trace = TraceReader::of(Path::new("trace"), Box::new(std::io::Cursor::new(text.to_vec())));
    let (mut meter, mut replay, mut done) = (Meter::default(), Replay::new(db, &values), 0);
    replay.run(&mut trace, &mut meter, |bytes| done = bytes)?;
    assert_eq!(done, text.len() as u64);
    Ok((meter, replay.answers))
}

/// Keys and the lengths of values, by keyspace; keyspaces without keys are left out.
fn content(db: &Db) -> BTreeMap<String, BTreeMap<Vec<u8>, usize>> {
    let of = |entries: shamba::Iter| {
        entries.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.len())).expect("read")).collect()
    };
    let mut content: BTreeMap<String, BTreeMap<Vec<u8>, usize>> = db
        .keyspaces()
        .into_iter()
        .map(|name| (name.clone(), of(db.keyspace(&name).expect("there").iter())))
        .collect();
    content.retain(|_, entries| !entries.is_empty());
    content
}

/// Random operations of every kind, through every kind of handle.
fn live(db: &Db, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let names = ["default", "users", "a b\\"];
    for _ in 0..1500 {
        let name = names[rng.usize(..names.len())];
        let keyspace = db.keyspace(name).expect("made");
        let key = |rng: &mut Rng| vec![rng.u8(..); rng.usize(..3)];
        let (first, second) = (key(&mut rng), key(&mut rng));
        match rng.u32(..20) {
            0..6 => {
                // Rarely a value that is stored outside its block.
                let bytes = if rng.u32(..50) == 0 { 40_000 } else { rng.usize(..100) };
                keyspace.put(&first, vec![7; bytes]).expect("written");
            }
            6 => keyspace.delete(&first).expect("written"),
            7 if rng.u32(..4) == 0 => keyspace.delete_range(&first..&second).expect("written"),
            8 if rng.u32(..20) == 0 => keyspace.delete_range(&first..).expect("written"),
            9 => {
                let mut batch = db.batch();
                batch.put(&first, "batch").delete_in(&keyspace, &second).put_in(&keyspace, &first, "more");
                batch.commit().expect("written");
            }
            10 => _ = keyspace.range(&first..).take(rng.usize(..9)).count(),
            11 => _ = keyspace.iter().rev().take(rng.usize(..9)).count(),
            12 => {
                let mut cursor = keyspace.cursor();
                if cursor.seek_for_prev(&first).expect("read") {
                    cursor.prev().expect("read");
                }
            }
            13 => _ = keyspace.multi_get([&first, &second]).expect("read"),
            14 => _ = db.snapshot().keyspace(&keyspace).get(&first).expect("read"),
            15 => _ = keyspace.get_hashed(&db.hash_key(&first)).expect("read"),
            16 if name != "default" && rng.u32(..30) == 0 => db.drop_keyspace(name).expect("dropped"),
            _ => _ = keyspace.get_with(&first, <[u8]>::len).expect("read"),
        }
    }
}

#[test]
fn what_was_recorded_leaves_the_same_elsewhere_and_answers_the_same() {
    for seed in 1..=6 {
        let vfs = Arc::new(MemFs::new());
        let db = open(&vfs);
        let recording = db.record_trace("/trace").expect("begun");
        live(&db, seed);
        let recorded = recording.finish().expect("written");
        let text = read_file(vfs.as_ref(), Path::new("/trace")).expect("there");
        let other = Arc::new(MemFs::new());
        let copy = open(&other);
        let again = copy.record_trace("/trace").expect("begun");
        let (meter, answers) = replayed(&copy, &text).expect("carried out");
        assert_eq!(meter.ops, recorded.operations, "seed {seed}");
        assert!(answers.checked > 100, "{answers:?}");
        assert_eq!(answers.wrong, 0, "seed {seed}");
        assert_eq!(content(&copy), content(&db), "seed {seed}");
        // The copy received the same requests as the original; it has answers where the original
        // read at snapshots.
        again.finish().expect("written");
        let asked = |text: &[u8]| -> Vec<String> {
            let text = String::from_utf8(text.to_vec()).expect("ASCII");
            let lines = text.lines().filter(|line| line.starts_with(['I', 'D', 'X', 'Q']));
            lines.map(|line| line.trim_end_matches([' ', '+', '-']).to_owned()).collect()
        };
        let copied = read_file(other.as_ref(), Path::new("/trace")).expect("there");
        assert_eq!(asked(&copied), asked(&text), "seed {seed}");
    }
}

#[test]
fn other_answers_than_the_traces_are_counted() {
    let db = open(&Arc::new(MemFs::new()));
    let (_, answers) = replayed(&db, b"I a *3\nQ a +\nQ a -\nQ b +\nQ b -\nQ b\n").expect("carried out");
    assert_eq!(answers, Answers { checked: 4, wrong: 2 });
    assert_eq!(db.get("a").expect("read").map(|value| value.len()), Some(3));
}

#[test]
fn ranges_hold_their_ends_as_their_letters_say() {
    let db = open(&Arc::new(MemFs::new()));
    let left = |text: &str| {
        let text = format!("I a *1\nI b *1\nI c *1\nI d *1\n{text}");
        replayed(&db, text.as_bytes()).expect("carried out");
        let keys = db.iter().map(|entry| entry.map(|(key, _)| String::from_utf8_lossy(&key).into_owned()));
        keys.collect::<shamba::Result<String>>().expect("read")
    };
    for (text, keys) in [
        ("R b c\n", "ad"),
        ("X b c\n", "acd"),
        ("X b\n", "a"),
        ("R c b\n", "abcd"),
        ("X \\e\n", ""),
        ("S a d\nN b 2\nN z 5\nP c 9\nP \\e 0\n", "abcd"),
        ("G nowhere\n", "abcd"),
    ] {
        assert_eq!(left(text), keys, "{text}");
    }
}

#[test]
fn nothing_is_carried_out_in_another_keyspace_than_the_lines() {
    let db = open(&Arc::new(MemFs::new()));
    for line in ["I a *1", "D a", "X a", "R a b", "Q a", "S a b", "N a 1"] {
        let text = format!("I a *5\nK users\nI b *1\nG users\n{line}\n");
        let error = replayed(&db, text.as_bytes()).expect_err("the keyspace is gone");
        let reason = "its keyspace was dropped, and no later line K selects another";
        assert_eq!(error.to_string(), format!("trace, line 5: {reason}"), "{line}");
        assert_eq!(db.get("a").expect("read").map(|value| value.len()), Some(5), "{line}");
    }
    // Dropped twice, created again, or a keyspace other than that of the lines.
    for (text, left) in [
        ("K users\nI b *1\nG users\nG users\nK users\nI c *1\n", "users"),
        ("K users\nI b *1\nK others\nI c *1\nG users\nI d *1\n", "others"),
    ] {
        let db = open(&Arc::new(MemFs::new()));
        replayed(&db, text.as_bytes()).expect("carried out");
        assert_eq!(content(&db).into_keys().collect::<Vec<_>>(), [left], "{text}");
    }
}

#[test]
fn a_recording_that_was_cut_off_is_not_whole() {
    let db = open(&Arc::new(MemFs::new()));
    replayed(&db, b"# shamba trace 1\nI a *1\n# end 1\n").expect("whole");
    let error = replayed(&db, b"# shamba trace 1\nI a *1\n").expect_err("cut off");
    assert!(error.to_string().starts_with("trace, line 2: the recording is incomplete"), "{error}");
}

#[test]
fn malformed_traces_stop_at_the_line() {
    let db = open(&Arc::new(MemFs::new()));
    let error = replayed(&db, b"I a *3\nI b\n").expect_err("malformed");
    assert_eq!(error.to_string(), "trace, line 2: I KEY VALUE is expected");
    assert!(matches!(error, Error::Trace(_)));
}

#[test]
fn made_up_workloads_are_replayed_with_their_answers_right() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("workload.txt");
    for (number, spread) in [
        Spread::Uniform,
        Spread::Normal { mean: 0.5, deviation: 1.0 },
        Spread::Beta { alpha: 2.0, beta: 5.0 },
        Spread::Zipf { alpha: 1.0 },
    ]
    .into_iter()
    .enumerate()
    {
        let entries =
            Entries { entry_bytes: 40, key_share: 0.4, answers: true, lengths_only: number % 2 == 0 };
        let mix = Mix {
            inserts: 3000,
            updates: 300,
            deletes: 500,
            range_deletes: 5,
            range_delete_share: 0.002,
            lookups: 2000,
            scans: 20,
            scan_share: 0.01,
            empty_lookups: 0.5,
            empty_deletes: 0.1,
            existing_spread: spread,
            empty_spread: spread,
            insert_spread: spread,
            update_spread: spread,
            ..Mix::default()
        };
        let mut file = std::fs::File::create(&path).expect("made");
        let mut generator = Generator::new(entries, 3).expect("possible");
        let made = generator.make(&mix, &mut file, &mut |_, _| {}).expect("made");
        let db = open(&Arc::new(MemFs::new()));
        let options = Options { trace: Some(path.clone()), ..Options::default() };
        options.check(Workload::Replay).expect("fine");
        let progress = Progress::default();
        let result: BenchResult =
            crate::run(&db, Workload::Replay, &options, &progress).expect("carried out");
        assert_eq!(progress.read(), (made.bytes, made.bytes));
        assert_eq!((result.ops, result.answers_checked, result.answers_wrong), (5825, 2000, 0));
        assert_eq!((result.found_share, result.expected_found_share), (0.5, Some(0.5)));
        assert_eq!(db.iter().count() as u64, made.live_keys, "{spread:?}");
    }
}

#[test]
fn a_replay_needs_a_trace_and_one_thread() {
    let refused = |options: Options| options.check(Workload::Replay).expect_err("refused").to_string();
    assert!(refused(Options::default()).contains("--trace"));
    let trace = Some("/no/such/trace".into());
    assert!(
        refused(Options { threads: 2, trace: trace.clone(), ..Options::default() }).contains("--threads")
    );
    assert!(refused(Options { trace, ..Options::default() }).starts_with("/no/such/trace: "));
}
