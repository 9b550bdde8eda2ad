//! Single flipped bytes of a whole database: `dump`, `check` and `get` of the real binary must give
//! right answers, or exit with 2 and name the damaged file, or with 5 for bytes of versions and
//! features.
//!
//! This is a sample, spread over all files; the whole sweep runs in one process
//! (`tests/tests/suites/sweep.rs`). The copy was taken while its writer was running: a database
//! that was never closed, with a live log.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use shamba::{Compression, Db, Durability, MergePolicy, Sizing};

use crate::support::{Dir, Run, run};

const FLIPS: usize = 640;
const ENTRIES: usize = 400;

fn value(number: usize) -> String {
    let length = if number % 100 == 7 { 5_000 } else { 40 + number % 90 };
    let mut rng = fastrand::Rng::with_seed(number as u64);
    (0..length).map(|_| rng.alphanumeric()).collect()
}

/// Writes the database and copies it while it is open.
fn make(dir: &Dir) -> PathBuf {
    let (live, copy) = (dir.path("live"), PathBuf::from(dir.path("copy")));
    let db = Db::builder(&live)
        .info_log(false)
        .merge_policy(MergePolicy::Leveling)
        .experimental(|e| {
            e.sizing(Sizing::Manual)
                .auto_compaction(false)
                .file_size(28 << 10)
                .block_bytes(1024)
                .large_values(4096, 2048)
        })
        .compression(Compression::Lz4)
        .durability(Durability::NoSync)
        .open()
        .expect("created");
    let put = |number: usize| db.put(format!("key{number:04}"), value(number)).expect("put");
    (0..ENTRIES).for_each(put);
    db.flush().expect("flush");
    db.compact().expect("compact");
    (0..ENTRIES).step_by(3).for_each(put);
    db.delete_range("key0100".."key0110").expect("delete_range");
    db.flush().expect("flush");
    (0..ENTRIES).step_by(11).for_each(put);
    db.delete_range("key0200".."key0205").expect("delete_range");
    db.sync().expect("sync");
    fs::create_dir(&copy).expect("made");
    for entry in fs::read_dir(&live).expect("there") {
        let path = entry.expect("readable").path();
        fs::copy(&path, copy.join(path.file_name().expect("a name"))).expect("copied");
    }
    copy
}

/// Asserts a right answer, or a failure that fits damage to `file`; returns the exit code.
fn judge(what: &str, file: &str, run: &Run, right: &str) -> i32 {
    assert!(!run.err.contains("panicked"), "{what}: {run:?}");
    match run.code {
        0 => assert_eq!(run.out, right, "{what}: wrong answers"),
        // Output before the damage was reached must be right, too.
        2 | 5 => assert!(run.err.contains(file) || run.out.contains(file), "{what}: {run:?}"),
        code => panic!("{what}: exit code {code}: {run:?}"),
    }
    run.code
}

#[test]
fn the_binary_answers_rightly_or_names_the_damage() {
    let dir = Dir::new();
    let source = make(&dir);
    let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(&source)
        .expect("there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.file_name().is_some_and(|name| name != "LOCK"))
        .map(|path| {
            (path.file_name().expect("a name").to_string_lossy().into(), fs::read(path).expect("read"))
        })
        .collect();
    files.sort();
    let source = source.to_str().expect("UTF-8");
    let dump = run(["dump", source]).ok();
    let keys = ["key0000", "key0007", "key0157", "key0103", "key0299"];
    let gets: Vec<Run> = keys.iter().map(|key| run(["get", source, key])).collect();
    assert_eq!(gets[3].code, 1, "deleted");
    let bytes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    let (next, codes) = (AtomicUsize::new(0), Mutex::new([[0usize; 6]; 3]));
    let flip = |number: usize, copy: &Path| {
        // The step through all files is odd, so that every file and structure is reached.
        let mut at = (number * bytes / FLIPS + number * 7 % (bytes / FLIPS)).min(bytes - 1);
        let (name, whole) = files
            .iter()
            .find(|(_, whole)| {
                let is_here = at < whole.len();
                at -= if is_here { 0 } else { whole.len() };
                is_here
            })
            .expect("in some file");
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (number % 8);
        fs::write(copy.join(name), &flipped).expect("written");
        let db = copy.to_str().expect("UTF-8");
        let what = format!("byte {at} of {name} ^ {:#04x}", 1 << (number % 8));
        let dumped = run(["dump", db]);
        let checked = run(["check", db]);
        let key = number % keys.len();
        let got = run(["get", db, keys[key]]);
        let is_absent = gets[key].code == 1 && got.code == 1 && got.out.is_empty();
        let found = [
            judge(&format!("dump, {what}"), name, &dumped, &dump),
            judge(&format!("check, {what}"), name, &checked, &checked.out),
            if is_absent { 0 } else { judge(&format!("get, {what}"), name, &got, &gets[key].out) },
        ];
        for (counts, code) in codes.lock().expect("no panic").iter_mut().zip(found) {
            counts[code as usize] += 1;
        }
        fs::write(copy.join(name), whole).expect("written");
    };
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let copy = PathBuf::from(dir.path(&format!("copy{worker}")));
            fs::create_dir(&copy).expect("made");
            for (name, whole) in &files {
                fs::write(copy.join(name), whole).expect("written");
            }
            let (next, flip) = (&next, &flip);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= FLIPS {
                        return;
                    }
                    flip(number, &copy);
                }
            });
        }
    });
    let codes = codes.into_inner().expect("no panic");
    println!("{FLIPS} flips over {bytes} bytes of {} files", files.len());
    for (command, codes) in ["dump", "check", "get"].iter().zip(codes) {
        println!("  {command}: {} right, {} exit 2, {} exit 5", codes[0], codes[2], codes[5]);
        // `check` reports nearly every flip: only those in filters and in the tail of the log cause
        // no problem.
        let right = if *command == "get" { FLIPS / 10 } else { 0 };
        assert!(codes[0] > right && codes[2] > FLIPS / 20, "{command}: {codes:?}");
    }
}
