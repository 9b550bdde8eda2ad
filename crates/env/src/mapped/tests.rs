//! Mapped files: what is in the file while it is open, and what happens when a copy fails.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::fault::Watch;
use super::*;
use crate::{RealFs, Vfs, append_all};

/// Set in the process that a test starts to see how it ends.
const CHILD: &str = "SHAMBA_TEST_FOREIGN_FAULT";

/// One test at a time: they share the table of windows.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn create_in(dir: &tempfile::TempDir, name: &str) -> (PathBuf, MappedFile) {
    let path = dir.path().join(name);
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("created");
    (path, MappedFile::new(file, true))
}

/// Bytes that differ from their neighbours.
fn pattern(from: usize, bytes: usize) -> Vec<u8> {
    (from..from + bytes).map(|at| (at % 251) as u8 + 1).collect()
}

#[test]
fn what_was_appended_is_in_the_file_at_once_and_zeros_follow_until_it_is_dropped() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let (path, mut file) = create_in(&dir, "log");
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut expected = Vec::new();
    for step in 0..2_000 {
        // Now and then one that is written, and one that cuts the file.
        let bytes = match rng.u8(..) {
            0 => COPIED_BYTES_MAX + rng.usize(..WINDOW_BYTES),
            1 => WINDOW_BYTES / 2,
            _ => rng.usize(..500),
        };
        let piece = pattern(expected.len(), bytes);
        append_all(&mut file, &piece).expect("appended");
        expected.extend_from_slice(&piece);
        // The appends after it are written into the window's room.
        if rng.u8(..8) == 0 {
            file.sync_data().expect("synced");
        }
        if rng.u8(..) == 0 {
            expected.truncate(rng.usize(..=expected.len()));
            file.truncate(expected.len() as u64).expect("truncated");
        }
        if step % 100 == 0 {
            let content = std::fs::read(&path).expect("read");
            assert!(content.starts_with(&expected), "step {step}: the file differs");
            assert!(content[expected.len()..].iter().all(|&byte| byte == 0), "step {step}: no zeros follow");
        }
    }
    file.sync_data().expect("synced");
    drop(file);
    assert!(std::fs::read(&path).expect("read") == expected, "the file differs after the drop");
}

/// A forked process has a copy of the value, whose end is that of the fork.
#[test]
fn the_drop_of_a_copy_in_another_process_cuts_nothing() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let (path, mut file) = create_in(&dir, "log");
    append_all(&mut file, &pattern(0, 1_000)).expect("appended");
    let mut copy = MappedFile::new(file.file.try_clone().expect("cloned"), true);
    (copy.end, copy.file_bytes, copy.process) = (file.end, file.file_bytes, file.process ^ 1);
    append_all(&mut file, &pattern(1_000, 1_000)).expect("appended");
    drop(copy);
    append_all(&mut file, &pattern(2_000, 1_000)).expect("appended");
    drop(file);
    assert!(std::fs::read(&path).expect("read") == pattern(0, 3_000), "the file differs");
}

#[test]
fn a_file_that_another_process_truncates_is_an_error_of_the_append() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let (path, mut file) = create_in(&dir, "log");
    append_all(&mut file, &pattern(0, 10_000)).expect("appended");
    OpenOptions::new().write(true).open(&path).expect("opened").set_len(0).expect("truncated");
    let error = append_all(&mut file, &pattern(10_000, 10_000)).expect_err("the page is gone");
    assert!(error.to_string().contains("mapped page is lost"), "{error}");
    assert_eq!(file.end, 10_000, "nothing of a failed append counts");
    append_all(&mut file, b"again").expect_err("and no later append succeeds");
    // Another file is not affected.
    let (_, mut other) = create_in(&dir, "other");
    append_all(&mut other, b"bytes").expect("appended");
    // The owner truncates after a failure; then the file takes appends again.
    file.truncate(3).expect("truncated");
    append_all(&mut file, b"new").expect("appended");
    drop(file);
    assert_eq!(std::fs::read(&path).expect("read"), b"\0\0\0new");
}

#[test]
fn the_first_appends_after_a_sync_are_written_and_keep_the_room() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let (path, mut file) = create_in(&dir, "log");
    append_all(&mut file, &pattern(0, 100)).expect("appended");
    for synced in [true, false] {
        if synced {
            file.sync_data().expect("synced");
        } else {
            file.sync_all().expect("synced");
        }
        // A copy fails in a file that another process has truncated; a write does not.
        let truncate = || OpenOptions::new().write(true).open(&path).expect("opened").set_len(0);
        for _ in 0..WRITTEN_AFTER_SYNC {
            truncate().expect("truncated");
            append_all(&mut file, b"written").expect("written");
        }
        truncate().expect("truncated");
        append_all(&mut file, b"copied").expect_err("the page is gone");
        file.truncate(0).expect("truncated");
        append_all(&mut file, &pattern(0, 100)).expect("appended");
        assert_eq!(std::fs::metadata(&path).expect("metadata").len(), WINDOW_BYTES as u64);
    }
    // Each of many synced appends finds room that was written before.
    for step in 0..2 * WINDOW_BYTES / 500 {
        append_all(&mut file, &pattern(step, 500)).expect("written");
        file.sync_data().expect("synced");
        let room = std::fs::metadata(&path).expect("metadata").len();
        assert!(room % WINDOW_BYTES as u64 == 0, "the file of {room} bytes grew by an append");
    }
}

#[test]
fn a_fault_that_is_not_ours_still_ends_the_process() {
    if std::env::var_os(CHILD).is_some() {
        let dir = tempfile::tempdir().expect("a directory");
        let (_, mut ours) = create_in(&dir, "log");
        append_all(&mut ours, b"installs the handler").expect("appended");
        let path = dir.path().join("foreign");
        std::fs::write(&path, vec![1; 8_192]).expect("written");
        let file = File::open(&path).expect("opened");
        // SAFETY: the test expects the fault.
        let map = unsafe { MmapOptions::new().map(&file).expect("mapped") };
        OpenOptions::new().write(true).open(&path).expect("opened").set_len(0).expect("truncated");
        println!("{}", std::hint::black_box(map[4_096]));
        return;
    }
    let name = "mapped::tests::a_fault_that_is_not_ours_still_ends_the_process";
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("started");
    let signal = std::os::unix::process::ExitStatusExt::signal(&child.status);
    assert_eq!(signal, Some(libc::SIGBUS), "{}", String::from_utf8_lossy(&child.stdout));
}

#[test]
fn without_a_window_appends_are_written_and_no_zeros_follow() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let (path, mut file) = create_in(&dir, "log");
    append_all(&mut file, &pattern(0, 100)).expect("appended");
    // The end of the window is reached while every place for another is taken.
    append_all(&mut file, &pattern(100, WINDOW_BYTES - 100)).expect("appended");
    file.window = None;
    let taken: Vec<Watch> = std::iter::from_fn(|| Watch::window(1, 1).ok()).collect();
    append_all(&mut file, &pattern(WINDOW_BYTES, 300)).expect("written");
    assert!(file.window.is_none(), "no window was left");
    let expected = pattern(0, WINDOW_BYTES + 300);
    assert!(std::fs::read(&path).expect("read") == expected, "zeros or other bytes follow");
    drop(taken);
    append_all(&mut file, &pattern(WINDOW_BYTES + 300, 50)).expect("written");
    drop(file);
    assert!(std::fs::read(&path).expect("read") == pattern(0, WINDOW_BYTES + 350), "the file differs");
}

#[test]
fn the_real_file_system_maps_a_log_where_it_may() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("log");
    let mut log = RealFs::new().create_log(&path).expect("created");
    assert_eq!(
        RealFs::new().create_log(&path).expect_err("the name is taken").kind(),
        io::ErrorKind::AlreadyExists
    );
    append_all(log.as_mut(), b"record").expect("appended");
    let kind = rustix::fs::fstatfs(File::open(&path).expect("opened")).expect("stats").f_type as u64;
    let expected = if FILE_SYSTEMS.contains(&kind) { WINDOW_BYTES } else { 6 };
    assert_eq!(std::fs::metadata(&path).expect("metadata").len(), expected as u64, "file system {kind:#x}");
    drop(log);
    assert_eq!(std::fs::read(&path).expect("read"), b"record");
}
