//! All file systems give the same answers to a random script of calls: results, error kinds,
//! contents, listings.
//!
//! The real file system is the reference. The additional guarantees of the others (crashes, faults)
//! are tested in their own modules.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{
    AlignedBuf, FaultFs, LockKind, ManualClock, MemFs, RandomFile, RealFs, SimFs, SlowFs, Vfs, WriteFile,
    append_all, read_aligned_at, read_file,
};

const CALLS_PER_SCRIPT: usize = 400;

/// Few names, so that they collide: files where directories are wanted, and vice versa.
const NAMES: [&str; 12] =
    ["a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a", "d/e/f", "a/x", "missing/x", "d/e/f/g"];

/// The result of a call as text, without the parts that may differ: error messages and free bytes.
fn outcome<T: std::fmt::Debug>(result: io::Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("error {:?}", error.kind()),
    }
}

/// Runs the script of `seed` below `root` and returns the result of each call.
fn run_script(vfs: &dyn Vfs, root: &Path, seed: u64) -> Vec<String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut writers: BTreeMap<usize, Box<dyn WriteFile>> = BTreeMap::new();
    let mut readers: BTreeMap<usize, Arc<dyn RandomFile>> = BTreeMap::new();
    let mut locks = BTreeMap::new();
    let mut said = Vec::new();
    for step in 0..CALLS_PER_SCRIPT {
        let (path, other): (PathBuf, PathBuf) =
            (root.join(NAMES[rng.usize(..NAMES.len())]), root.join(NAMES[rng.usize(..NAMES.len())]));
        let slot = rng.usize(..4);
        let call = rng.u8(..22);
        let answer = match call {
            0 | 1 => outcome(vfs.create(&path).map(|file| drop(writers.insert(slot, file)))),
            2 => outcome(vfs.open_append(&path).map(|file| drop(writers.insert(slot, file)))),
            3..=6 => {
                let bytes: Vec<u8> = (0..rng.usize(..300)).map(|_| rng.u8(..)).collect();
                match writers.get_mut(&slot) {
                    Some(file) => outcome(append_all(file.as_mut(), &bytes)),
                    None => "no writer".to_owned(),
                }
            }
            7 => match writers.get_mut(&slot) {
                Some(file) => outcome(file.truncate(rng.u64(..500))),
                None => "no writer".to_owned(),
            },
            8 => match writers.get_mut(&slot) {
                Some(file) => outcome(file.sync_data().and_then(|()| file.sync_all())),
                None => "no writer".to_owned(),
            },
            9 => outcome(vfs.open_read(&path).map(|file| drop(readers.insert(slot, file)))),
            10 | 11 => match readers.get(&slot) {
                Some(file) => {
                    let mut buf = vec![0; rng.usize(..200)];
                    let offset = rng.u64(..400);
                    let read = file.read_at(offset, &mut buf);
                    format!("{} {} {buf:?}", outcome(file.len()), outcome(read))
                }
                None => "no reader".to_owned(),
            },
            12 => outcome(vfs.rename(&path, &other)),
            13 => outcome(vfs.unlink(&path)),
            14 => outcome(vfs.link(&path, &other)),
            15 => outcome(vfs.create_dir_all(&path)),
            16 => outcome(vfs.remove_dir(&path)),
            17 => format!("{} {}", outcome(vfs.list(&path)), outcome(vfs.exists(&path))),
            18 => outcome(read_file(vfs, &path)),
            20 => outcome(vfs.open_read_direct(&path).and_then(|file| {
                let (mut page, needed) = (AlignedBuf::new(1), rng.usize(..400));
                read_aligned_at(file.as_ref(), 0, &mut page, needed)?;
                Ok((file.len()?, page[..needed].to_vec()))
            })),
            19 => outcome(vfs.disk_free_bytes(&path).map(|bytes| bytes > 0)),
            _ => {
                let kind = if rng.bool() { LockKind::Shared } else { LockKind::Exclusive };
                locks.remove(&slot);
                outcome(vfs.lock(&path, kind).map(|lock| drop(locks.insert(slot, lock))))
            }
        };
        said.push(format!("{step}: call {call} on {:?} {:?}: {answer}", path.file_name(), other.file_name()));
    }
    said
}

fn real_answers(seed: u64) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a directory");
    run_script(&RealFs::new(), dir.path(), seed)
}

fn compare(name: &str, make: impl Fn(u64) -> Arc<dyn Vfs>) {
    for seed in 0..25 {
        let expected = real_answers(seed);
        let vfs = make(seed);
        vfs.create_dir_all(Path::new("/root")).expect("a root");
        let answers = run_script(vfs.as_ref(), Path::new("/root"), seed);
        for (expected, answer) in expected.iter().zip(&answers) {
            assert_eq!(expected, answer, "{name} differs from the real one, seed {seed}");
        }
    }
}

#[test]
fn memory_answers_as_the_real_one() {
    compare("MemFs", |_| Arc::new(MemFs::new()));
}

#[test]
fn the_simulation_answers_as_the_real_one() {
    compare("SimFs", |_| Arc::new(SimFs::new()));
}

#[test]
fn without_rules_the_faulty_one_changes_nothing() {
    compare("FaultFs", |seed| Arc::new(FaultFs::new(Arc::new(MemFs::new()), seed)));
}

#[test]
fn the_slow_one_changes_nothing_but_time() {
    let clock = || Arc::new(ManualClock::new());
    compare("SlowFs", |_| Arc::new(SlowFs::new(Arc::new(MemFs::new()), clock(), 7_000, 9_000)));
}

/// Runs the same checks of locks on each kind of file system.
fn check_locks(vfs: &dyn Vfs, root: &Path) {
    let path = root.join("LOCK");
    let refused = |kind| match vfs.lock(&path, kind) {
        Ok(_) => panic!("{kind:?} was given although another holder is there"),
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
    };

    // A shared lock neither creates the file nor blocks a later writer.
    let nothing = vfs.lock(&path, LockKind::Shared).expect("shared, no file");
    assert!(!vfs.exists(&path).expect("asked"));
    let writer = vfs.lock(&path, LockKind::Exclusive).expect("exclusive creates");
    assert!(vfs.exists(&path).expect("asked"));
    drop(nothing);
    refused(LockKind::Exclusive);
    refused(LockKind::Shared);
    drop(writer);

    let readers = [LockKind::Shared; 2].map(|kind| vfs.lock(&path, kind).expect("shared twice"));
    refused(LockKind::Exclusive);
    let [first, second] = readers;
    drop(first);
    refused(LockKind::Exclusive);
    drop(second);
    let writer = vfs.lock(&path, LockKind::Exclusive).expect("free again");

    // The lock belongs to the file, not to its name.
    vfs.unlink(&path).expect("unlinked");
    let other = vfs.lock(&path, LockKind::Exclusive).expect("another file");
    drop(writer);
    refused(LockKind::Exclusive);
    drop(other);
}

#[test]
fn locks_exclude_each_other_within_a_process() {
    let dir = tempfile::tempdir().expect("a directory");
    check_locks(&RealFs::new(), dir.path());
    check_locks(&MemFs::new(), Path::new("/"));
    check_locks(&SimFs::new(), Path::new("/"));
    check_locks(&FaultFs::new(Arc::new(MemFs::new()), 0), Path::new("/"));
    let slow = SlowFs::new(Arc::new(MemFs::new()), Arc::new(ManualClock::new()), 1, 1);
    check_locks(&slow, Path::new("/"));
}

#[test]
fn the_root_in_memory_cannot_be_made_moved_or_removed() {
    let vfs = MemFs::new();
    let root = Path::new("/");
    vfs.create_dir_all(root).expect("it is there");
    assert!(vfs.create(root).is_err());
    assert!(vfs.unlink(root).is_err());
    assert!(vfs.remove_dir(root).is_err());
    assert!(vfs.rename(root, Path::new("/a")).is_err());
    assert!(vfs.open_read(Path::new("/../a")).is_err());
    assert_eq!(vfs.list(root).expect("listed"), []);
}
