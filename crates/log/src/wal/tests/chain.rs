//! Tests of the chain of logs: gaps, left-over files, branches, and errors that are not damage.

use shamba_env::{Effect, FaultFs, FaultRule, OpKind};

use super::*;
use crate::framing::FrameWriter;
use crate::wal::floor::SurveyedLog;
use crate::wal::report::ReplayWarning;

fn ops(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    encode_op(&mut out, true, KeyspaceId(0), OpRef::Put { key: text.as_bytes(), value: b"v" });
    out
}

fn create(env: &Env, number: u64, before: Option<Predecessor>, base: u64) -> WalWriter {
    WalWriter::create(env, Path::new(DIR), LogNo(number), before, SeqNo(base)).expect("a log")
}

fn put(wal: &mut WalWriter, seq: u64) {
    wal.append_batch(SeqNo(seq), 1, &ops(&format!("k{seq}"))).expect("appended");
}

fn options(first_log: u64) -> ReplayOptions {
    ReplayOptions { first_log: LogNo(first_log), ..ReplayOptions::default() }
}

fn sequences(got: &[Vec<(SeqNo, KeyspaceId, Op)>]) -> Vec<u64> {
    got.iter().flatten().map(|(seq, _, _)| seq.0).collect()
}

#[test]
fn logs_before_the_first_are_not_read() {
    let env = new_env(1);
    let mut old = create(&env, 3, None, 0);
    put(&mut old, 1);
    old.flush().expect("flushed");
    let mut new = create(&env, 5, Some(old.predecessor()), 0);
    put(&mut new, 2);
    new.flush().expect("flushed");
    env.vfs.unlink(&Path::new(DIR).join(log_file_name(LogNo(3)))).expect("removed");
    let (report, got) = replay_all(&env, &options(5)).expect("replayed");
    assert_eq!((sequences(&got), report.last_seq, report.warnings.len()), (vec![2], SeqNo(2), 0));
}

#[test]
fn nothing_but_a_missing_first_log_is_a_crash_right_after_creation() {
    let env = new_env(1);
    let (report, got) = replay_all(&env, &options(4)).expect("replayed");
    assert!(got.is_empty() && report.clean && report.warnings.is_empty());
    let promised = ReplayOptions { promise: Some((LogNo(4), 124)), ..options(4) };
    let error = replay_all(&env, &promised).expect_err("the log was promised");
    assert!(matches!(error, Error::Corruption { .. }));
    assert!(damaged_file(&error).ends_with("000004.log"));
}

#[test]
fn a_log_that_a_recovery_left_behind_is_ignored_while_it_is_empty() {
    let env = new_env(1);
    let mut old = create(&env, 3, None, 0);
    put(&mut old, 1);
    old.flush().expect("flushed");
    let mut left = create(&env, 6, None, 1);
    left.sync().expect("synced");
    let (report, got) = replay_all(&env, &options(3)).expect("replayed");
    assert_eq!((sequences(&got), report.warnings.len()), (vec![1], 0));
    // If the new log contains a batch, the manifest should name it: something was lost.
    put(&mut left, 2);
    left.flush().expect("flushed");
    let error = replay_all(&env, &options(3)).expect_err("the manifest disagrees");
    assert!(damaged_file(&error).ends_with("000006.log"), "{error}");
}

#[test]
fn a_copy_of_the_tail_counts_once_the_manifest_names_it() {
    let env = new_env(1);
    let mut old = create(&env, 3, None, 0);
    (1..=3).for_each(|seq| put(&mut old, seq));
    old.flush().expect("flushed");
    // Sequence numbers 1 and 2 are in tables; the copy begins after them.
    let mut copy = WalWriter::create_copy(&env, Path::new(DIR), LogNo(6), LogNo(3), SeqNo(2)).expect("a log");
    put(&mut copy, 3);
    copy.sync_unpromised().expect("synced");
    let (report, got) = replay_all(&env, &options(3)).expect("an open crashed before it renamed CURRENT");
    assert_eq!((sequences(&got), report.warnings.len()), (vec![1, 2, 3], 0));
    // A damaged copy that the manifest does not name is ignored as well.
    let path = Path::new(DIR).join(log_file_name(LogNo(6)));
    let whole = shamba_env::read_file(env.vfs.as_ref(), &path).expect("read");
    env.vfs.unlink(&path).expect("removed");
    shamba_env::write_file_synced(env.vfs.as_ref(), &path, &whole[..whole.len() - 1]).expect("cut");
    assert_eq!(sequences(&replay_all(&env, &options(3)).expect("replayed").1), [1, 2, 3]);
    env.vfs.unlink(&path).expect("removed");
    shamba_env::write_file_synced(env.vfs.as_ref(), &path, &whole).expect("written");
    // Once the manifest names the copy, the old log is obsolete and the manifest promises the copy.
    let promise = Some((LogNo(6), whole.len() as u64));
    let in_force = ReplayOptions { promise, known_seq: SeqNo(2), ..options(6) };
    let (report, got) = replay_all(&env, &in_force).expect("replayed");
    assert_eq!((sequences(&got), report.last_seq, report.warnings.len()), (vec![3], SeqNo(3), 0));
    // The next open has copied the copy, and the manifest that named the first copy is lost: it had
    // been put in force by an open that failed.
    let mut again =
        WalWriter::create_copy(&env, Path::new(DIR), LogNo(8), LogNo(6), SeqNo(2)).expect("a log");
    put(&mut again, 3);
    again.sync_unpromised().expect("synced");
    let (report, got) = replay_all(&env, &options(3)).expect("two opens failed");
    assert_eq!((sequences(&got), report.warnings.len()), (vec![1, 2, 3], 0));
    // A log of batches before the first that the manifest names means that the manifest is too old.
    let error = replay_all(&env, &options(2)).expect_err("the manifest disagrees");
    assert!(damaged_file(&error).ends_with("000003.log"), "{error}");
}

#[test]
fn a_copy_that_promises_more_is_not_ignored() {
    let env = new_env(1);
    let mut old = create(&env, 3, None, 0);
    put(&mut old, 1);
    old.flush().expect("flushed");
    let mut copy = WalWriter::create_copy(&env, Path::new(DIR), LogNo(6), LogNo(3), SeqNo(0)).expect("a log");
    put(&mut copy, 1);
    copy.sync_unpromised().expect("synced");
    put(&mut copy, 2);
    // Writes go only to a log that the manifest names.
    copy.sync().expect("synced");
    let error = replay_all(&env, &options(3)).expect_err("the manifest disagrees");
    assert!(damaged_file(&error).ends_with("000006.log"), "{error}");
}

#[test]
fn a_log_whose_creation_failed_is_passed_over() {
    let env = new_env(1);
    let mut first = create(&env, 3, None, 0);
    put(&mut first, 1);
    first.flush().expect("flushed");
    let before = first.predecessor();
    drop(create(&env, 4, Some(before), 0));
    let mut third = create(&env, 6, Some(before), 0);
    put(&mut third, 2);
    third.flush().expect("flushed");
    let (report, got) = replay_all(&env, &options(3)).expect("replayed");
    assert_eq!((sequences(&got), report.warnings.len()), (vec![1, 2], 0));
}

#[test]
fn what_lies_behind_the_length_that_the_next_log_states_was_never_acknowledged() {
    let env = new_env(1);
    let mut first = create(&env, 3, None, 0);
    put(&mut first, 1);
    first.flush().expect("flushed");
    let before = first.predecessor();
    // A failed append whose bytes could not be truncated either.
    put(&mut first, 2);
    first.flush().expect("flushed");
    let mut second = create(&env, 6, Some(before), 0);
    second.append_batch(SeqNo(2), 1, &ops("other")).expect("appended");
    second.flush().expect("flushed");
    let (report, got) = replay_all(&env, &options(3)).expect("replayed");
    assert_eq!((sequences(&got), report.warnings.len()), (vec![1, 2], 0));
    assert!(matches!(&got[1][0].2, Op::Put { key, .. } if key == b"other"));
}

#[test]
fn a_gap_in_the_sequence_needs_an_explanation() {
    let env = new_env(1);
    let mut wal = create(&env, 3, None, 0);
    put(&mut wal, 1);
    put(&mut wal, 5);
    wal.flush().expect("flushed");
    let (report, got) = replay_all(&env, &options(3)).expect("a tail");
    assert_eq!((sequences(&got), report.warnings.len()), (vec![1], 1));
    let known = ReplayOptions { known_seq: SeqNo(4), ..options(3) };
    let (report, got) = replay_all(&env, &known).expect("replayed");
    assert_eq!((sequences(&got), report.warnings.len()), (vec![1, 5], 0));
    // Between two logs, the base in the head explains the gap.
    let mut next = create(&env, 4, Some(wal.predecessor()), 9);
    put(&mut next, 10);
    next.flush().expect("flushed");
    let (_, got) = replay_all(&env, &known).expect("replayed");
    assert_eq!(sequences(&got), [1, 5, 10]);
}

#[test]
fn a_log_written_over_by_an_older_self_is_a_hole() {
    // The predecessor has the right length but another last record.
    let env = new_env(1);
    let mut first = create(&env, 3, None, 0);
    put(&mut first, 1);
    first.flush().expect("flushed");
    let before = Predecessor { last_checksum: first.predecessor().last_checksum ^ 1, ..first.predecessor() };
    let mut second = create(&env, 6, Some(before), 0);
    put(&mut second, 2);
    second.flush().expect("flushed");
    let (report, got) = replay_all(&env, &options(3)).expect("a hole above every promise");
    assert_eq!((sequences(&got), report.warnings.len()), (vec![1], 2));
    second.predecessor_is_synced();
    second.sync().expect("synced");
    let error = replay_all(&env, &options(3)).expect_err("now the first log is promised whole");
    assert!(damaged_file(&error).ends_with("000003.log"));
}

#[test]
fn a_read_error_is_never_the_end_of_the_log() {
    // Of the second, whose records are longer than what a read gets, reads fail inside of records.
    let long = Story::write(3, &[Act::Batch(2), Act::Batch(700_000), Act::Flush]);
    for story in [stories().remove(2), long] {
        check_read_errors(&story);
    }
}

fn check_read_errors(story: &Story) {
    let calm = story.restore(&[]);
    for nth in 0..40 {
        let faulty = Arc::new(FaultFs::new(Arc::clone(&calm.vfs), 1));
        faulty.add_rule(FaultRule::nth(nth, Effect::Eio).on(&[OpKind::Read]));
        let env = Env { vfs: Arc::clone(&faulty) as _, ..calm.clone() };
        let result = replay_all(&env, &story.options());
        if faulty.faults_injected() == 0 {
            story.check_prefix(&result.expect("no fault").1, story.batches.len());
            return;
        }
        assert!(matches!(result.expect_err("a read failed"), Error::Io { .. }));
    }
    panic!("40 reads were not enough");
}

#[test]
fn a_malformed_batch_with_good_checksums_is_corruption_wherever_it_is() {
    let env = new_env(1);
    let mut wal = create(&env, 3, None, 0);
    put(&mut wal, 1);
    wal.flush().expect("flushed");
    let two = [ops("one"), b"and less than two".to_vec()].concat();
    wal.append_large(SeqNo(2), 2, &[&two]).expect("appended");
    wal.flush().expect("flushed");
    let error = replay_all(&env, &options(3)).expect_err("not the work of a crash");
    assert!(matches!(error, Error::Corruption { structure: "batch", .. }), "{error}");
    let (_, got) =
        replay_all(&env, &ReplayOptions { recovery: Recovery::PointInTime, ..options(3) }).expect("kept");
    assert_eq!(sequences(&got), [1]);
}

/// Writes log 3 frame by frame.
fn framed(env: &Env, write: impl FnOnce(&mut FrameWriter)) {
    let path = Path::new(DIR).join(log_file_name(LogNo(3)));
    let mut frames = FrameWriter::create(env, &path, FileKind::Wal, 3).expect("a log");
    write(&mut frames);
    frames.flush().expect("flushed");
}

fn point_in_time(first_log: u64) -> ReplayOptions {
    ReplayOptions { recovery: Recovery::PointInTime, ..options(first_log) }
}

fn warning(number: u64, offset: u64, bytes: u64, reason: &str) -> ReplayWarning {
    let file = Path::new(DIR).join(log_file_name(LogNo(number)));
    ReplayWarning { file, offset, bytes, reason: reason.to_owned() }
}

#[test]
fn a_promise_of_nothing_needs_no_log() {
    let env = new_env(1);
    let promised = ReplayOptions { promise: Some((LogNo(4), 0)), ..options(4) };
    let (report, got) = replay_all(&env, &promised).expect("nothing was promised");
    assert!(got.is_empty() && report.clean && report.warnings.is_empty());
}

#[test]
fn a_missing_log_that_the_manifest_names_is_a_warning_that_states_the_loss() {
    let env = new_env(1);
    let mut wal = create(&env, 3, None, 0);
    put(&mut wal, 1);
    wal.flush().expect("flushed");
    let promised = ReplayOptions { promise: Some((LogNo(9), 500)), ..point_in_time(3) };
    let (report, got) = replay_all(&env, &promised).expect("the log before it is kept");
    assert_eq!(sequences(&got), [1]);
    let reason = "it is missing; the manifest promises everything below 500";
    assert_eq!(report.warnings, [warning(9, 0, 500, reason)]);
    // The manifest names a first log above the promised one; its length is unknown.
    let promised = ReplayOptions { promise: Some((LogNo(4), 500)), ..point_in_time(9) };
    let (report, got) = replay_all(&env, &promised).expect("no log is left");
    assert_eq!(sequences(&got), []);
    assert_eq!(report.warnings, [warning(9, 0, 0, "it is missing; the manifest names it")]);
}

#[test]
fn a_log_that_ends_before_its_promise_is_a_warning_that_states_the_loss() {
    let env = new_env(1);
    let mut wal = create(&env, 3, None, 0);
    put(&mut wal, 1);
    wal.flush().expect("flushed");
    let end = wal.flushed();
    let promised = ReplayOptions { promise: Some((LogNo(3), end + 40)), ..point_in_time(3) };
    let (report, got) = replay_all(&env, &promised).expect("kept");
    assert_eq!(sequences(&got), [1]);
    let reason = format!("it ends here; the manifest promises everything below {}", end + 40);
    assert_eq!(report.warnings, [warning(3, end, 40, &reason)]);
    let text = format!("/db/000003.log: 40 bytes from offset {end} ignored: {reason}");
    assert_eq!(report.warnings[0].to_string(), text);
}

#[test]
fn nothing_follows_the_end_marker_and_no_head_lies_inside_a_log() {
    let head = Head { predecessor: None, copy_of: None, base_seq: SeqNo(0) }.encode();
    let record = |key: &str| [&[0], &ops(key)[..]].concat();
    let inside: [(FrameKind, &[u8], &str); 2] = [
        (FrameKind::End, &[], "a record after the end marker"),
        (FrameKind::Head, &head, "a head inside the log"),
    ];
    for (kind, payload, detail) in inside {
        let env = new_env(1);
        let mut place = 0;
        framed(&env, |frames| {
            frames.append_special(FrameKind::Head, &head).expect("buffered");
            frames.append_record(&[&record("first")]).expect("buffered");
            let before = frames.offset();
            frames.append_special(kind, payload).expect("buffered");
            place = if kind == FrameKind::End { frames.offset() } else { before };
            frames.append_record(&[&record("second")]).expect("buffered");
        });
        match replay_all(&env, &options(3)).expect_err("no crash causes it") {
            Error::Corruption { offset, structure, detail: got, .. } => {
                assert_eq!((offset, structure, got.as_str()), (place, "log record", detail));
            }
            other => panic!("{other:?}"),
        }
        let (report, got) = replay_all(&env, &point_in_time(3)).expect("kept");
        assert_eq!(sequences(&got), [1]);
        let told: Vec<_> = report.warnings.iter().map(|warning| warning.reason.as_str()).collect();
        assert_eq!(told, [detail]);
    }
}

#[test]
fn the_first_record_must_be_an_intact_head_even_if_another_looks_like_one() {
    let head_fault = |env: &Env| {
        let surveyed = SurveyedLog::survey(env, Path::new(DIR), LogNo(3)).expect("read");
        let fault = surveyed.head.expect_err("no head");
        match LogFollower::open(env, Path::new(DIR), LogNo(3)).expect_err("no head") {
            Error::Corruption { offset, structure, detail, .. } => {
                assert_eq!((offset, structure, &detail), (HEADER_BYTES, "log head", &fault));
            }
            other => panic!("{other:?}"),
        }
        fault
    };
    let head = Head { predecessor: None, copy_of: None, base_seq: SeqNo(4) }.encode();
    let env = new_env(1);
    framed(&env, |frames| _ = frames.append_record(&[&head]).expect("buffered"));
    assert_eq!(head_fault(&env), "the first record is not a head");
    let env = new_env(1);
    framed(&env, |frames| frames.append_special(FrameKind::Head, &head).expect("buffered"));
    let path = Path::new(DIR).join(log_file_name(LogNo(3)));
    let mut bytes = read_file(env.vfs.as_ref(), &path).expect("the log");
    *bytes.last_mut().expect("a head") ^= 1;
    env.vfs.unlink(&path).expect("removed");
    append_all(env.vfs.create(&path).expect("a file").as_mut(), &bytes).expect("written");
    let fault = head_fault(&env);
    assert!(fault.starts_with("frame checksum "), "{fault}");
}
