//! Tests of the writer under I/O errors: sealed at the last complete record, never retried, never
//! appended to again.

use shamba_env::{Effect, FaultFs, FaultRule, OpKind};

use super::*;
use crate::framing::frame::{PAYLOAD_BYTES_MAX, PROMISE_BYTES};
use crate::wal::record::encode_op_head;

fn batch(wal: &mut WalWriter) -> Result<()> {
    let mut ops = Vec::new();
    encode_op(&mut ops, true, KeyspaceId(0), OpRef::Put { key: b"key", value: b"value" });
    wal.append_batch(wal.last_seq().next(), 1, &ops).map(|_| ())
}

fn faulty() -> (Arc<FaultFs>, Env) {
    let calm = new_env(1);
    let faulty = Arc::new(FaultFs::new(Arc::clone(&calm.vfs), 1));
    let env = Env { vfs: Arc::clone(&faulty) as _, ..calm };
    (faulty, env)
}

fn create(env: &Env, number: u64, before: Option<Predecessor>) -> Result<WalWriter> {
    WalWriter::create(env, Path::new(DIR), LogNo(number), before, SeqNo::ZERO)
}

#[test]
fn a_failed_append_seals_and_cuts_and_another_log_may_follow() {
    for effect in [Effect::Enospc, Effect::Eio] {
        let (faults, env) = faulty();
        let mut wal = create(&env, 3, None).expect("a log");
        batch(&mut wal).expect("appended");
        wal.flush().expect("flushed");
        let good = wal.flushed();
        batch(&mut wal).expect("buffered");
        faults.add_rule(FaultRule::nth(0, effect).on(&[OpKind::Append]));
        let failed = wal.flush().expect_err("the append failed");
        faults.clear_rules();
        // The file system works again, but the writer must not retry.
        assert_eq!(batch(&mut wal).expect_err("sealed").to_string(), failed.to_string());
        assert_eq!(wal.flush().expect_err("sealed").to_string(), failed.to_string());
        assert!(wal.may_be_followed());
        assert_eq!((wal.offset(), wal.last_seq()), (good, SeqNo(1)));
        // The flushed part can still be synced, and a next log continues there.
        wal.sync().expect("synced");
        assert_eq!(wal.synced(), good);
        let mut next = create(&env, 5, Some(wal.predecessor())).expect("a log");
        batch(&mut next).expect("appended");
        next.sync().expect("synced: its predecessor is");
        let options = ReplayOptions { first_log: LogNo(3), ..ReplayOptions::default() };
        let (report, got) = replay_all(&env, &options).expect("replayed");
        assert_eq!((got.len(), report.warnings.len()), (2, 0));
    }
}

#[test]
fn a_large_batch_that_fails_half_way_leaves_no_trace_and_takes_nothing_along() {
    for nth in 0..6 {
        let (faults, env) = faulty();
        let mut wal = create(&env, 3, None).expect("a log");
        batch(&mut wal).expect("buffered");
        faults.add_rule(FaultRule::nth(nth, Effect::Enospc).on(&[OpKind::Append]));
        let value = vec![7; 500_000];
        let op = OpRef::Put { key: b"large", value: &value };
        // The first append is that of the earlier batch; the large one is written in pieces.
        let appended = wal.append_op(SeqNo(2), KeyspaceId(0), op);
        let flushed = appended.clone().and_then(|_| wal.flush());
        faults.clear_rules();
        let kept = match nth {
            0 => 0,
            1..=4 => 1,
            _ => 2,
        };
        assert_eq!(flushed.is_ok(), kept == 2, "append {nth}");
        assert_eq!(appended.is_ok(), nth >= 4, "append {nth}");
        assert!(wal.may_be_followed());
        assert_eq!(wal.last_seq(), SeqNo(kept));
        assert_eq!(wal.offset(), wal.flushed());
        assert_eq!(env.vfs.list(Path::new(DIR)).expect("a directory")[0].bytes, wal.flushed());
        let options = ReplayOptions { first_log: LogNo(3), ..ReplayOptions::default() };
        let (report, got) = replay_all(&env, &options).expect("replayed");
        assert_eq!((got.len() as u64, report.warnings.len()), (kept, 0), "append {nth}");
    }
}

#[test]
fn the_place_of_a_large_batch_is_told() {
    let env = new_env(1);
    let mut wal = create(&env, 3, None).expect("a log");
    batch(&mut wal).expect("buffered");
    let mut head = Vec::new();
    let value: Vec<u8> = (0..200_000u32).map(|index| index as u8).collect();
    let op = OpRef::Put { key: b"large", value: &value };
    let tail = encode_op_head(&mut head, true, KeyspaceId(0), op);
    let (left, right) = tail.split_at(70_000);
    let (offset, begin) = wal.append_large(SeqNo(2), 1, &[&head, left, right]).expect("appended");
    wal.flush().expect("flushed");
    let path = Path::new(DIR).join(log_file_name(LogNo(3)));
    let bytes = read_file(env.vfs.as_ref(), &path).expect("the log");
    let payload: Vec<u8> = bytes[offset as usize..]
        .chunks(FRAME_HEADER_BYTES + PAYLOAD_BYTES_MAX)
        .flat_map(|frame| frame[FRAME_HEADER_BYTES..].iter().copied())
        .collect();
    assert!(payload[begin + head.len()..] == value);
    let options = ReplayOptions { first_log: LogNo(3), ..ReplayOptions::default() };
    assert_eq!(replay_all(&env, &options).expect("replayed").1[1][0].2, Op::from(op));
}

#[test]
fn a_failed_append_that_cannot_be_cut_may_not_be_followed() {
    let (faults, env) = faulty();
    let mut wal = create(&env, 3, None).expect("a log");
    batch(&mut wal).expect("buffered");
    faults.add_rule(FaultRule::nth(0, Effect::Enospc).on(&[OpKind::Append]));
    faults.add_rule(FaultRule::nth(0, Effect::Eio).on(&[OpKind::Truncate]));
    wal.flush().expect_err("the append failed");
    assert!(!wal.may_be_followed());
}

#[test]
fn a_failed_sync_is_never_retried() {
    for kind in [OpKind::SyncData, OpKind::SyncDir] {
        let (faults, env) = faulty();
        let mut wal = create(&env, 3, None).expect("a log");
        batch(&mut wal).expect("buffered");
        faults.add_rule(FaultRule::nth(0, Effect::Eio).on(&[kind]));
        let failed = wal.sync().expect_err("the sync failed");
        faults.clear_rules();
        faults.start_trace();
        assert_eq!(wal.sync().expect_err("sealed").to_string(), failed.to_string());
        batch(&mut wal).expect_err("sealed");
        assert!(!wal.may_be_followed() && wal.synced() == 0);
        assert_eq!(faults.take_trace(), [], "nothing was called again");
    }
}

#[test]
fn a_log_is_not_synced_before_its_predecessor() {
    let env = new_env(1);
    let mut first = create(&env, 3, None).expect("a log");
    batch(&mut first).expect("buffered");
    first.flush().expect("flushed");
    let mut second = create(&env, 4, Some(first.predecessor())).expect("a log");
    assert!(matches!(second.sync().expect_err("too early"), Error::Invalid(_)));
    first.sync().expect("synced");
    second.predecessor_is_synced();
    second.sync().expect("synced");
}

#[test]
fn a_log_that_cannot_be_created_leaves_no_file() {
    let (faults, env) = faulty();
    faults.add_rule(FaultRule::nth(0, Effect::Enospc).on(&[OpKind::Append]));
    assert!(create(&env, 3, None).expect_err("no space").is_no_space());
    assert_eq!(list_logs(&env), []);
}

#[test]
fn short_writes_are_looped_to_completion() {
    let (faults, env) = faulty();
    faults.add_rule(FaultRule::storm(0.7, Effect::ShortWrite).on(&[OpKind::Append]));
    let mut wal = create(&env, 3, None).expect("a log");
    for _ in 0..50 {
        batch(&mut wal).expect("buffered");
        wal.flush().expect("flushed");
    }
    assert!(faults.faults_injected() > 5);
    let options = ReplayOptions { first_log: LogNo(3), ..ReplayOptions::default() };
    assert_eq!(replay_all(&env, &options).expect("replayed").1.len(), 50);
}

#[test]
fn what_was_synced_is_promised_at_once_but_a_log_without_batches_promises_nothing() {
    let env = new_env(1);
    let mut wal = create(&env, 3, None).expect("a log");
    wal.sync().expect("synced");
    let size = |env: &Env| env.vfs.list(Path::new(DIR)).expect("a directory")[0].bytes;
    assert_eq!(
        size(&env),
        wal.synced(),
        "a promise here would cover logs that a recovery has yet to replace"
    );
    batch(&mut wal).expect("buffered");
    wal.sync().expect("synced");
    let (synced, with_promise) = (wal.synced(), size(&env));
    assert_eq!((wal.offset(), wal.flushed()), (synced, synced), "the promise itself needs no sync");
    assert_eq!(with_promise, synced + PROMISE_BYTES as u64);
    wal.sync().expect("nothing to do");
    assert_eq!(size(&env), with_promise);
    // Damage to the last batch is not a torn tail.
    let path = Path::new(DIR).join(log_file_name(LogNo(3)));
    let mut bytes = read_file(env.vfs.as_ref(), &path).expect("the log");
    bytes[synced as usize - 1] ^= 1;
    env.vfs.unlink(&path).expect("removed");
    append_all(env.vfs.create(&path).expect("a file").as_mut(), &bytes).expect("written");
    let options = ReplayOptions { first_log: LogNo(3), ..ReplayOptions::default() };
    assert!(matches!(replay_all(&env, &options).expect_err("rot"), Error::Corruption { .. }));
}

#[test]
fn a_promise_that_cannot_be_written_does_not_fail_the_sync() {
    let (faults, env) = faulty();
    let mut wal = create(&env, 3, None).expect("a log");
    batch(&mut wal).expect("buffered");
    wal.flush().expect("flushed");
    faults.add_rule(FaultRule::nth(0, Effect::Enospc).on(&[OpKind::Append]));
    wal.sync().expect("the batch is on the disk");
    assert!(batch(&mut wal).expect_err("sealed").is_no_space());
    assert!(wal.may_be_followed());
}

#[test]
fn the_longest_batch_that_shares_a_record_fits_one_frame_exactly() {
    let value = vec![7; SHARED_BYTES_MAX];
    for (more, is_large) in [(0, false), (1, true)] {
        let env = new_env(1);
        let mut wal = create(&env, 3, None).expect("a log");
        let mut ops = Vec::new();
        // Besides its value, a put takes its kind, a key of one byte, and a length of three.
        let value = &value[..SHARED_BYTES_MAX - 6 + more];
        encode_op(&mut ops, true, KeyspaceId(0), OpRef::Put { key: b"k", value });
        assert_eq!(ops.len(), SHARED_BYTES_MAX + more);
        let place = wal.append_batch(SeqNo(1), 1, &ops).expect("appended");
        assert_eq!(place.is_some(), is_large, "{more} bytes more");
        // An operation is encoded in the buffer if the bound of its length fits.
        let op = OpRef::Put { key: b"k", value: &value[..value.len() - 12] };
        assert_eq!(op.encoded_bytes_max(), SHARED_BYTES_MAX + more);
        let place = wal.append_op(SeqNo(2), KeyspaceId(0), op).expect("appended");
        assert_eq!(place.is_some(), is_large, "{more} bytes more");
        wal.flush().expect("flushed");
        let options = ReplayOptions { first_log: LogNo(3), ..ReplayOptions::default() };
        assert_eq!(replay_all(&env, &options).expect("replayed").1.len(), 2);
    }
}

#[test]
fn only_a_record_of_several_frames_flushes_what_is_buffered_before_it() {
    let value = vec![7; PAYLOAD_BYTES_MAX];
    for (more, flushes) in [(0, false), (1, true)] {
        let env = new_env(1);
        let mut wal = create(&env, 3, None).expect("a log");
        let head_end = wal.flushed();
        batch(&mut wal).expect("buffered");
        let first_end = wal.offset();
        let mut ops = Vec::new();
        // The payload consists of a gap of one byte, the value, and six bytes more of a put.
        let value = &value[..PAYLOAD_BYTES_MAX - 7 + more];
        encode_op(&mut ops, true, KeyspaceId(0), OpRef::Put { key: b"k", value });
        assert_eq!(1 + ops.len(), PAYLOAD_BYTES_MAX + more);
        wal.append_large(SeqNo(2), 1, &[&ops]).expect("appended");
        assert_eq!(wal.flushed(), if flushes { first_end } else { head_end }, "{more} bytes more");
        assert!(wal.buffered() > 0 && wal.memory_bytes() as u64 >= wal.buffered());
        wal.flush().expect("flushed");
        let options = ReplayOptions { first_log: LogNo(3), ..ReplayOptions::default() };
        assert_eq!(replay_all(&env, &options).expect("replayed").1.len(), 2);
    }
}
