//! Scenarios of the stream of changes.

use shamba::{Change, ChangeOp, Changes, ChangesOptions, Db, Durability, ErrorKind, MergePolicy};
use shuttle::thread;

use crate::explore::{Done, SCHEDULES_FEW, explore};
use crate::scheduled::{builder, files};

static STREAMS: Done = Done::new();

/// The name of the count of streams that saw every change.
const COMPLETE: &str = "streams that saw every change";
/// The name of the count of times that a stream's next log had been deleted.
const BEHIND: &str = "times that a stream fell behind";

/// The key of the last write.
const END: &[u8] = b"end";
const WRITERS: usize = 2;
const BATCHES: usize = 6;

/// Commits batches of two keys, `<writer> <number> 0` and `... 1`.
fn commit_batches(db: &Db, writer: usize) {
    for number in 0..BATCHES {
        let keys = [0, 1].map(|key| [writer as u8, number as u8, key]);
        let mut batch = db.batch();
        batch.put(keys[0], [7; 90]).put(keys[1], [7; 90]);
        let durability = [Durability::NoSync, Durability::Sync][(writer + number) % 2];
        batch.commit_with(durability).expect("commit");
    }
}

/// The writer and the number of a batch, which is there as a whole; `None`: it is the last write.
fn numbered(change: &Change) -> Option<(usize, usize)> {
    let Change::Batch(batch) = change else { panic!("nobody made {change:?}") };
    let puts = batch.operations().map(|(_, operation)| match operation {
        ChangeOp::Put { key, .. } => key,
        other => panic!("nobody wrote {other:?}"),
    });
    match puts.collect::<Vec<_>>()[..] {
        [END] => None,
        [&[writer, number, 0], &[same_writer, same_number, 1]]
            if (writer, number) == (same_writer, same_number) =>
        {
            Some((usize::from(writer), usize::from(number)))
        }
        ref keys => panic!("a batch with the keys {keys:?}"),
    }
}

/// Reads a stream up to the last write: the batches of each writer come in their
/// order, and what was delivered is visible. A stream misses changes only if it was told so, and
/// only if its position is older than the oldest one.
fn follow(db: &Db, mut changes: Changes, options: ChangesOptions) {
    let mut next = [0; WRITERS];
    let mut may_miss = [false; WRITERS];
    let mut falls = 0;
    loop {
        let before = changes.position();
        match changes.next().expect("the database is open") {
            Ok(change) => {
                assert!(change.position().sequence > before.sequence, "{change:?} after {before}");
                let Some((writer, number)) = numbered(&change) else { break };
                let due = next[writer];
                assert!(
                    number == due || (may_miss[writer] && number > due),
                    "batch {number} of writer {writer} instead of {due}"
                );
                assert!(
                    db.get([writer as u8, number as u8, 1]).expect("get").is_some(),
                    "{number} is not visible"
                );
                next[writer] = number + 1;
                may_miss[writer] = false;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
                falls += 1;
                let oldest = db.oldest_change_position().expect("a position");
                assert!(
                    oldest.sequence > before.sequence,
                    "the changes after {before} are gone, and {oldest} is the oldest"
                );
                may_miss = [true; WRITERS];
                // Another log may be deleted before the stream begins there.
                changes = loop {
                    let oldest = db.oldest_change_position().expect("a position");
                    match db.changes_since_with(oldest, options) {
                        Ok(stream) => break stream,
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Gone, "{error}"),
                    }
                };
            }
        }
    }
    assert!(falls > 0 || next == [BATCHES; WRITERS], "the stream saw {next:?} batches");
    STREAMS.add(COMPLETE, u64::from(falls == 0));
    STREAMS.add(BEHIND, falls);
}

/// Two streams, of durable changes and of all visible ones, while writers commit and logs are
/// deleted as soon as their entries are in tables.
fn streams_beside_flushes() {
    let db = builder(&files(), MergePolicy::Leveling).open().expect("open");
    let begin = db.change_position();
    let streams = [false, true].map(|include_unsynced| {
        let db = db.clone();
        let options = ChangesOptions::new().include_unsynced(include_unsynced);
        let changes = db.changes_since_with(begin, options).expect("a stream");
        thread::spawn(move || follow(&db, changes, options))
    });
    let writers = [0, 1].map(|writer| {
        let db = db.clone();
        thread::spawn(move || commit_batches(&db, writer))
    });
    db.flush().expect("flush");
    writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
    db.put_with(END, "", Durability::Sync).expect("put");
    streams.into_iter().for_each(|stream| stream.join().expect("no panic"));
    STREAMS.note(&db);
    db.close().expect("close");
}

#[test]
fn streams_beside_writers() {
    explore(
        "streams::streams_beside_writers",
        SCHEDULES_FEW,
        streams_beside_flushes,
        &STREAMS,
        &[("flushes", 200), (COMPLETE, 50), (BEHIND, 20)],
    );
}
