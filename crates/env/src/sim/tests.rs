//! The guarantees of a crash: synced data survives every policy, unsynced data survives as the
//! policy says.

use std::collections::HashSet;
use std::path::PathBuf;

use super::*;
use crate::{Vfs, WriteFile, append_all, read_file};

fn at(path: &str) -> &Path {
    Path::new(path)
}

fn content(fs: &SimFs, path: &str) -> Option<Vec<u8>> {
    read_file(fs, at(path)).ok()
}

fn text(fs: &SimFs, path: &str) -> Option<String> {
    content(fs, path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn now(fs: &SimFs, policy: CrashPolicy) -> SimFs {
    fs.crash(fs.op_count(), &policy)
}

/// A file with a durable name and `durable` as durable content, then each of `pending` appended by
/// one call.
fn file_with(fs: &SimFs, path: &str, durable: &str, pending: &[&str]) -> Box<dyn WriteFile> {
    let mut file = fs.create(at(path)).expect("created");
    append_all(file.as_mut(), durable.as_bytes()).expect("appended");
    file.sync_data().expect("synced");
    fs.sync_dir(at("/")).expect("synced");
    for bytes in pending {
        append_all(file.as_mut(), bytes.as_bytes()).expect("appended");
    }
    file
}

#[test]
fn each_policy_lets_through_what_it_says() {
    let fs = SimFs::new();
    let _file = file_with(&fs, "/a", "base-", &["11", "22", "33"]);
    for (policy, expected) in [
        (CrashPolicy::None, "base-"),
        (CrashPolicy::All, "base-112233"),
        (CrashPolicy::Prefix(2), "base-1122"),
        (CrashPolicy::Prefix(9), "base-112233"),
        (CrashPolicy::DropOne(2), "base-1122"),
        (CrashPolicy::DropOne(1), "base-11\0\x0033"),
        (CrashPolicy::KeepOne(0), "base-11"),
        (CrashPolicy::KeepOne(1), "base-\0\x0022"),
        (CrashPolicy::Torn { i: 1, cut: 1 }, "base-112"),
        (CrashPolicy::TornHole { i: 1, cut: 1 }, "base-112\x0033"),
    ] {
        assert_eq!(text(&now(&fs, policy), "/a").as_deref(), Some(expected), "{policy:?}");
    }
    let lengths: HashSet<usize> = (0..40)
        .map(|seed| now(&fs, CrashPolicy::ZeroExtend { seed }))
        .map(|image| content(&image, "/a").expect("there").len())
        .collect();
    assert_eq!(lengths, HashSet::from([11]), "all lengths arrive");
    for spoilt in [|seed| CrashPolicy::ZeroExtend { seed }, |seed| CrashPolicy::StaleExtend { seed }] {
        let images: HashSet<_> = (0..40).map(|seed| content(&now(&fs, spoilt(seed)), "/a")).collect();
        assert!(images.len() > 3, "{:?} gives only {} images", spoilt(0), images.len());
    }
}

#[test]
fn crashing_earlier_shows_earlier_disks_in_any_order_of_asking() {
    let fs = SimFs::new();
    let mut file = file_with(&fs, "/a", "", &[]);
    let start = fs.op_count();
    // More calls than between two checkpoints, with a sync after every other call.
    for i in 0..2_000u32 {
        append_all(file.as_mut(), &[b'a' + (i % 26) as u8]).expect("appended");
        file.sync_data().expect("synced");
    }
    let mut rng = fastrand::Rng::with_seed(5);
    let mut points: Vec<u64> = (0..60).map(|_| rng.u64(..=4_000)).collect();
    points.extend([4_000, 0, 1_023, 1_024, 1_025, 2_048]);
    for calls in points {
        let durable = content(&fs.crash(start + calls, &CrashPolicy::None), "/a").expect("there");
        assert_eq!(durable.len() as u64, calls / 2, "after {calls} calls");
        let all = content(&fs.crash(start + calls, &CrashPolicy::All), "/a").expect("there");
        assert_eq!(all.len() as u64, calls.div_ceil(2), "after {calls} calls");
    }
}

#[test]
fn a_name_is_durable_only_after_its_directory_is_synced() {
    let fs = SimFs::new();
    let mut file = fs.create(at("/a")).expect("created");
    append_all(file.as_mut(), b"x").expect("appended");
    file.sync_all().expect("synced");
    assert_eq!(content(&now(&fs, CrashPolicy::None), "/a"), None);
    // The only lenient policy: syncing the file also made the name durable.
    for seed in 0..20 {
        let lenient = now(&fs, CrashPolicy::DirExt4 { seed });
        assert_eq!(text(&lenient, "/a").as_deref(), Some("x"), "seed {seed}");
    }
    fs.sync_dir(at("/")).expect("synced");
    assert_eq!(text(&now(&fs, CrashPolicy::None), "/a").as_deref(), Some("x"));

    fs.create_dir_all(at("/d/e")).expect("created");
    drop(fs.create(at("/d/e/f")).expect("created"));
    fs.sync_dir(at("/d/e")).expect("synced");
    fs.sync_dir(at("/d")).expect("synced");
    assert!(!now(&fs, CrashPolicy::None).has_name(at("/d")), "the root was not synced");
    fs.sync_dir(at("/")).expect("synced");
    assert!(now(&fs, CrashPolicy::None).has_name(at("/d/e/f")));

    fs.unlink(at("/a")).expect("unlinked");
    assert!(now(&fs, CrashPolicy::None).has_name(at("/a")), "the removal is pending");
    assert!(!now(&fs, CrashPolicy::All).has_name(at("/a")));
}

#[test]
fn a_rename_is_atomic_but_under_the_strict_policy() {
    let fs = SimFs::new();
    let _old = file_with(&fs, "/CURRENT", "old", &[]);
    let _new = file_with(&fs, "/tmp", "new", &[]);
    fs.rename(at("/tmp"), at("/CURRENT")).expect("renamed");
    let state = |image: &SimFs| (text(image, "/tmp"), text(image, "/CURRENT"));
    let pair = |a: Option<&str>, b: &str| (a.map(str::to_owned), Some(b.to_owned()));

    let before = pair(Some("new"), "old");
    let after = pair(None, "new");
    let atomic: HashSet<_> = (0..50).map(|seed| state(&now(&fs, CrashPolicy::Subset { seed }))).collect();
    assert_eq!(atomic, HashSet::from([before.clone(), after.clone()]));
    let strict: HashSet<_> = (0..50).map(|seed| state(&now(&fs, CrashPolicy::DirStrict { seed }))).collect();
    let (both, neither) = (pair(Some("new"), "new"), pair(None, "old"));
    assert_eq!(strict, HashSet::from([before, after, both, neither]));
}

#[test]
fn a_rename_across_directories_needs_both_synced() {
    let fs = SimFs::new();
    fs.create_dir_all(at("/d")).expect("created");
    let _file = file_with(&fs, "/a", "x", &[]);
    fs.rename(at("/a"), at("/d/b")).expect("renamed");
    fs.sync_dir(at("/")).expect("synced");
    let image = now(&fs, CrashPolicy::None);
    assert_eq!((image.has_name(at("/a")), image.has_name(at("/d/b"))), (false, false));
    fs.sync_dir(at("/d")).expect("synced");
    assert_eq!(text(&now(&fs, CrashPolicy::None), "/d/b").as_deref(), Some("x"));
}

#[test]
fn hard_links_share_content_after_a_crash() {
    let fs = SimFs::new();
    let _file = file_with(&fs, "/a", "x", &[]);
    fs.link(at("/a"), at("/b")).expect("linked");
    let image = now(&fs, CrashPolicy::All);
    append_all(image.open_append(at("/b")).expect("opened").as_mut(), b"y").expect("appended");
    assert_eq!(text(&image, "/a").as_deref(), Some("xy"));
    assert_eq!(text(&fs, "/a").as_deref(), Some("x"), "the image is independent");
}

#[test]
fn a_failed_sync_leaves_what_its_mode_says() {
    for (failure, readable, after_next_sync) in [
        (FsyncFailure::Keep, "base-12", "base-123"),
        (FsyncFailure::Drop, "base-12", "base-\0\x003"),
        (FsyncFailure::Revert, "base-", "base-3"),
    ] {
        let fs = SimFs::new();
        let mut file = file_with(&fs, "/a", "base-", &["1", "2"]);
        fs.fail_sync(fs.sync_count(), failure);
        let failed = file.sync_data().expect_err("planned");
        assert_eq!(failed.raw_os_error(), Some(5));
        assert_eq!(text(&fs, "/a").as_deref(), Some(readable), "{failure:?}");
        assert_eq!(text(&now(&fs, CrashPolicy::None), "/a").as_deref(), Some("base-"), "{failure:?}");
        let all = if failure == FsyncFailure::Keep { "base-12" } else { "base-" };
        assert_eq!(text(&now(&fs, CrashPolicy::All), "/a").as_deref(), Some(all), "{failure:?}");
        append_all(file.as_mut(), b"3").expect("appended");
        file.sync_data().expect("only one was planned");
        assert_eq!(text(&now(&fs, CrashPolicy::None), "/a").as_deref(), Some(after_next_sync), "{failure:?}");
    }

    let fs = SimFs::new();
    drop(fs.create(at("/a")).expect("created"));
    fs.fail_syncs_from(0, FsyncFailure::Drop);
    assert!(fs.sync_dir(at("/")).is_err() && fs.sync_dir(at("/")).is_err());
    assert!(fs.has_name(at("/a")) && !now(&fs, CrashPolicy::All).has_name(at("/a")));
}

#[test]
fn crashes_nest_and_locks_do_not_survive_them() {
    let fs = SimFs::new();
    let lock = fs.lock(at("/LOCK"), crate::LockKind::Exclusive).expect("locked");
    let _file = file_with(&fs, "/a", "one", &["two"]);
    let second = now(&fs, CrashPolicy::All);
    assert_eq!((second.op_count(), second.pending_count(0)), (0, 0));
    drop(second.lock(at("/LOCK"), crate::LockKind::Exclusive).expect("the crash freed it"));
    drop(lock);
    // The survivors of the first crash are durable without any further sync.
    append_all(second.open_append(at("/a")).expect("opened").as_mut(), b"three").expect("appended");
    assert_eq!(text(&now(&second, CrashPolicy::None), "/a").as_deref(), Some("onetwo"));
    let third = now(&second, CrashPolicy::All);
    third.unlink(at("/a")).expect("unlinked");
    assert_eq!(text(&now(&third, CrashPolicy::None), "/a").as_deref(), Some("onetwothree"));
    assert!(!now(&third, CrashPolicy::All).has_name(at("/a")));
}

#[test]
fn an_open_file_stays_readable_after_its_name_is_gone() {
    let fs = SimFs::new();
    let mut file = file_with(&fs, "/a", "x", &[]);
    let reader = fs.open_read(at("/a")).expect("opened");
    fs.unlink(at("/a")).expect("unlinked");
    append_all(file.as_mut(), b"y").expect("appended");
    let mut buf = [0; 4];
    assert_eq!(reader.read_at(0, &mut buf).expect("read"), 2);
    assert_eq!(&buf[..2], b"xy");
}

/// The durable state of a random run, and everything that it wrote.
#[derive(Default)]
struct Promises {
    /// Files whose name and at least this content are durable after that many calls.
    synced: Vec<(u64, PathBuf, Vec<u8>)>,
}

/// Files that are only appended to, synced and made durable by name; also directories with renames.
fn random_run(seed: u64) -> (SimFs, Promises) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let fs = SimFs::new();
    let mut promises = Promises::default();
    let mut files: Vec<(PathBuf, Box<dyn WriteFile>, Vec<u8>)> = Vec::new();
    for step in 0..120 {
        match rng.u8(..8) {
            0 => {
                let path = PathBuf::from(format!("/f{step}"));
                files.push((path.clone(), fs.create(&path).expect("created"), Vec::new()));
                fs.sync_dir(at("/")).expect("synced");
            }
            1 => {
                let temporary = PathBuf::from(format!("/t{step}"));
                drop(fs.create(&temporary).expect("created"));
                fs.rename(&temporary, at("/CURRENT")).expect("renamed");
            }
            2 if !files.is_empty() => {
                let at = rng.usize(..files.len());
                let (path, file, written) = &mut files[at];
                file.sync_data().expect("synced");
                promises.synced.push((fs.op_count(), path.clone(), written.clone()));
            }
            _ if !files.is_empty() => {
                let at = rng.usize(..files.len());
                let bytes: Vec<u8> = (0..rng.usize(1..700)).map(|_| rng.u8(..)).collect();
                append_all(files[at].1.as_mut(), &bytes).expect("appended");
                files[at].2.extend_from_slice(&bytes);
            }
            _ => {}
        }
    }
    (fs, promises)
}

#[test]
fn synced_data_survives_every_policy_at_every_point() {
    let mut images = HashSet::new();
    let mut kinds = HashSet::new();
    for seed in 0..20 {
        let (fs, promises) = random_run(seed);
        for (k, policy) in fs.crash_points(0, seed) {
            let image = fs.crash(k, &policy);
            images.insert(image.image_hash());
            kinds.insert(std::mem::discriminant(&policy));
            for (_, path, durable) in promises.synced.iter().filter(|(since, ..)| *since <= k) {
                let found = read_file(&image, path)
                    .unwrap_or_else(|e| panic!("seed {seed}, k {k}, {policy:?}: {path:?}: {e}"));
                assert!(
                    found.starts_with(durable),
                    "seed {seed}, k {k}, {policy:?}: {path:?} lost synced bytes"
                );
            }
        }
    }
    assert_eq!(kinds.len(), 12, "every policy takes part");
    assert!(images.len() > 10_000, "only {} distinct images", images.len());
}

#[test]
fn the_same_run_gives_the_same_trace_and_images() {
    let ((first, _), (second, _), (other, _)) = (random_run(1), random_run(1), random_run(2));
    assert_eq!(first.trace_hash(), second.trace_hash());
    assert_ne!(first.trace_hash(), other.trace_hash());
    assert_eq!(first.image_hash(), second.image_hash());
    for k in 0..=first.op_count() {
        assert_eq!(first.policies_for(k, 9), second.policies_for(k, 9));
        for policy in first.policies_for(k, 9) {
            let (a, b) = (first.crash(k, &policy), second.crash(k, &policy));
            assert_eq!(a.image_hash(), b.image_hash(), "k {k}, {policy:?}");
        }
    }
}

#[test]
fn an_image_hash_sees_names_contents_and_places() {
    let build = |entries: &[(&str, &str)]| {
        let fs = SimFs::new();
        fs.create_dir_all(at("/d")).expect("created");
        for (path, bytes) in entries {
            append_all(fs.create(at(path)).expect("created").as_mut(), bytes.as_bytes()).expect("appended");
        }
        fs.image_hash()
    };
    let variants: [&[(&str, &str)]; 7] = [
        &[],
        &[("/a", "")],
        &[("/a", "x")],
        &[("/a", "x\0")],
        &[("/b", "x")],
        &[("/d/a", "x")],
        &[("/a", "x"), ("/b", "")],
    ];
    let hashes: HashSet<u64> = variants.iter().map(|entries| build(entries)).collect();
    assert_eq!(hashes.len(), variants.len());
    assert_eq!(build(&[("/a", "x"), ("/b", "y")]), build(&[("/b", "y"), ("/a", "x")]));
}

#[test]
fn settling_makes_everything_durable_and_calls_have_words() {
    let fs = SimFs::new();
    let mut file = fs.create(at("/a")).expect("created");
    append_all(file.as_mut(), b"xyz").expect("appended");
    assert_eq!(fs.pending_count(fs.op_count()), 2);
    fs.write_back();
    assert_eq!(fs.pending_count(fs.op_count()), 0);
    assert_eq!(text(&now(&fs, CrashPolicy::None), "/a").as_deref(), Some("xyz"));
    assert!(fs.describe_op(1).is_some_and(|words| words.contains("+a")));
    assert!(fs.describe_op(2).is_some_and(|words| words.starts_with("append 3 bytes at 0")));
    assert_eq!((fs.describe_op(0), fs.describe_op(4)), (None, None));
}
