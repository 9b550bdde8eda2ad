//! Log and manifest together under simulated power loss: the recovery order that [`replay`]
//! prescribes keeps the prefix rule, even when recovery itself is interrupted.
//!
//! [`Mini`] is a minimal engine that follows this order; its "tables" are settings in the manifest.

use std::collections::BTreeSet;

use shamba_env::{CrashPolicy, Rng, SeededRng, SimFs};

use shamba_log::wal::{OpRef, Recovery, ReplayOptions, WalWriter, encode_op, parse_log_file_name, replay};

use super::*;
use crate::error::{Error, Result};
use crate::version::ManifestEdit;
use crate::version::manifest::{
    ManifestReader, ManifestState, ManifestWriter, manifest_file_name, parse_manifest_file_name,
};

fn list_logs(env: &Env) -> Vec<LogNo> {
    let entries = env.vfs.list(Path::new(DIR)).expect("a directory");
    entries.iter().filter_map(|entry| parse_log_file_name(&entry.name)).collect()
}

struct Mini {
    env: Env,
    manifest: ManifestWriter,
    state: ManifestState,
    wal: WalWriter,
    /// Earlier logs that are still needed.
    sealed: Vec<WalWriter>,
    last_seq: u64,
    next_id: u64,
}

fn table_entry(seq: u64) -> (String, String) {
    (format!("{seq:04}"), format!("v{seq}"))
}

impl Mini {
    fn open(env: &Env) -> Result<Self> {
        let dir = Path::new(DIR);
        env.vfs.create_dir_all(dir).expect("a directory");
        // As in every engine, the name of the directory itself must be durable.
        env.vfs.sync_dir(Path::new("/")).expect("synced");
        let loaded = ManifestReader::load(env, dir)?;
        let entries = env.vfs.list(dir).expect("a directory");
        let number = |name: &str| {
            parse_log_file_name(name).map(|log| log.0).or_else(|| parse_manifest_file_name(name))
        };
        let on_disk = entries.iter().filter_map(|entry| number(&entry.name)).max().unwrap_or(0);
        let mut state = loaded.map(|loaded| loaded.state).unwrap_or_default();
        let mut next_id = state.next_id.max(on_disk + 1);
        let mut new_id = || {
            next_id += 1;
            next_id - 1
        };
        let manifest_number = new_id();
        let log = LogNo(new_id());
        if state.first_log == LogNo(0) {
            state.first_log = log;
        }
        let options = ReplayOptions {
            first_log: state.first_log,
            promise: state.log_promise,
            known_seq: state.last_seq,
            recovery: Recovery::Strict,
            held_bytes_max: 0,
        };
        let mut recovered = Vec::new();
        let logs = list_logs(env);
        let report = replay(env, dir, &logs, &options, &mut |batch| {
            batch.for_each(&mut |seq, _, _| {
                recovered.push(table_entry(seq.0));
                Ok::<(), Error>(())
            })
        })?;
        let last_seq = report.last_seq.max(state.last_seq);
        let mut manifest = ManifestWriter::create(env, dir, manifest_number, &state)?;
        let mut wal = WalWriter::create(env, dir, log, None, last_seq)?;
        wal.sync()?;
        let edit = ManifestEdit {
            settings: recovered,
            first_log: Some(log),
            log_promise: Some((log, wal.synced())),
            last_seq: Some(last_seq),
            next_id: Some(next_id),
            ..ManifestEdit::default()
        };
        manifest.append(&edit)?;
        state.apply(&edit).expect("it fits");
        for entry in entries {
            if entry.name.starts_with("CURRENT") || entry.name == manifest_file_name(manifest_number) {
                continue;
            }
            env.vfs.unlink(&dir.join(entry.name)).expect("removed");
        }
        let (env, sealed) = (env.clone(), Vec::new());
        Ok(Self { env, manifest, state, wal, sealed, last_seq: last_seq.0, next_id })
    }

    /// Checks that the tables hold every operation without a gap; right after `open` they hold
    /// everything.
    fn check_contiguous(&self) {
        let expected: Vec<(String, String)> = (1..=self.last_seq).map(table_entry).collect();
        let got: Vec<(String, String)> =
            self.state.settings.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        assert_eq!(got, expected);
    }

    fn put(&mut self, count: u32) {
        let mut ops = Vec::new();
        for seq in self.last_seq + 1..=self.last_seq + u64::from(count) {
            let key = format!("k{seq}");
            let put = OpRef::Put { key: key.as_bytes(), value: &[7; 400] };
            let is_first = ops.is_empty();
            encode_op(&mut ops, is_first, KeyspaceId(0), put);
        }
        self.wal.append_batch(SeqNo(self.last_seq + 1), count, &ops).expect("appended");
        self.wal.flush().expect("flushed");
        self.last_seq += u64::from(count);
    }

    fn sync(&mut self) {
        for log in self.sealed.iter_mut().chain([&mut self.wal]) {
            log.predecessor_is_synced();
            log.sync().expect("synced");
        }
    }

    fn rotate(&mut self) {
        let number = LogNo(self.next_id);
        self.next_id += 1;
        let before = Some(self.wal.predecessor());
        let next = WalWriter::create(&self.env, Path::new(DIR), number, before, SeqNo(self.last_seq));
        self.sealed.push(std::mem::replace(&mut self.wal, next.expect("a log")));
    }

    /// Moves everything in sealed logs to tables.
    fn flush(&mut self) {
        let Some(sealed) = self.sealed.last() else { return };
        let through = sealed.last_seq();
        for log in &mut self.sealed {
            log.predecessor_is_synced();
            log.sync().expect("synced");
        }
        // In the engine, the sync of the tables does this: the log that `first_log` names must
        // survive a crash.
        self.env.vfs.sync_dir(Path::new(DIR)).expect("synced");
        let promise = self.sealed.last().map(|log| (log.number(), log.synced()));
        let edit = ManifestEdit {
            settings: (self.state.settings.len() as u64 + 1..=through.0).map(table_entry).collect(),
            first_log: Some(self.wal.number()),
            log_promise: promise,
            last_seq: Some(through),
            next_id: Some(self.next_id),
            ..ManifestEdit::default()
        };
        self.manifest.append(&edit).expect("installed");
        self.state.apply(&edit).expect("it fits");
        for log in self.sealed.drain(..) {
            self.env.vfs.unlink(log.path()).expect("removed");
        }
    }
}

/// A sequence number that was reached by the time that `calls` file system calls had been made.
struct Mark {
    calls: u64,
    seq: u64,
}

fn reached(marks: &[Mark], calls: u64) -> u64 {
    marks.iter().filter(|mark| mark.calls <= calls).map(|mark| mark.seq).max().unwrap_or(0)
}

#[test]
fn any_crash_keeps_a_prefix_with_everything_that_was_synced() {
    let mut images = BTreeSet::new();
    let mut nested = 0;
    for seed in 1..=10 {
        let sim = SimFs::new();
        let env = Env::deterministic(Arc::new(sim.clone()), seed);
        let rng = SeededRng::new(seed);
        let (mut begun, mut acked, mut durable) = (Vec::new(), Vec::new(), Vec::new());
        let mut boundaries = BTreeSet::from([0]);
        let mut mini = Mini::open(&env).expect("created");
        for _ in 0..25 {
            let calls = sim.op_count();
            match rng.next_u64() % 10 {
                0..=4 => {
                    let count = 1 + (rng.next_u64() % 3) as u32;
                    begun.push(Mark { calls, seq: mini.last_seq + u64::from(count) });
                    mini.put(count);
                    boundaries.insert(mini.last_seq);
                    acked.push(Mark { calls: sim.op_count(), seq: mini.last_seq });
                }
                5 | 6 => {
                    mini.sync();
                    durable.push(Mark { calls: sim.op_count(), seq: mini.last_seq });
                }
                7 | 8 => mini.rotate(),
                _ => mini.flush(),
            }
        }
        for (k, policy) in sim.crash_points(0, seed) {
            let crashed = sim.crash(k, &policy);
            if !images.insert(crashed.image_hash()) {
                continue;
            }
            let told = || format!("seed {seed}, crash behind call {k}, {policy:?}");
            let env = Env::deterministic(Arc::new(crashed.clone()), seed + 1_000);
            let mini = Mini::open(&env).unwrap_or_else(|error| panic!("{}: {error}", told()));
            mini.check_contiguous();
            let at_least = match policy {
                CrashPolicy::All => reached(&acked, k),
                _ => reached(&durable, k),
            };
            let recovered = mini.last_seq;
            assert!(recovered >= at_least, "{}: {recovered} of {at_least}", told());
            assert!(recovered <= reached(&begun, k), "{}: {recovered} was never written", told());
            assert!(boundaries.contains(&recovered), "{}: {recovered} is inside a batch", told());
            // A crash inside that recovery, at a few places, changes nothing, and a write after it
            // is not lost.
            if rng.next_u64().is_multiple_of(8) {
                let inner = crashed.op_count();
                for (j, policy) in crashed.crash_points(0, seed) {
                    if !rng.next_u64().is_multiple_of(inner) {
                        continue;
                    }
                    nested += 1;
                    let again = crashed.crash(j, &policy);
                    let env = Env::deterministic(Arc::new(again.clone()), seed + 2_000);
                    let tell = |error| panic!("{}, then behind call {j}, {policy:?}: {error}", told());
                    let mut mini = Mini::open(&env).unwrap_or_else(tell);
                    mini.check_contiguous();
                    assert_eq!(mini.last_seq, recovered, "{}, then {j}, {policy:?}", told());
                    mini.put(2);
                    mini.sync();
                    let last = Env::deterministic(Arc::new(again.crash(u64::MAX, &CrashPolicy::None)), 1);
                    assert_eq!(Mini::open(&last).unwrap_or_else(tell).last_seq, recovered + 2);
                }
            }
        }
    }
    println!("{} images, {nested} nested", images.len());
    assert!(images.len() > 2_000 && nested > 200, "{} images, {nested} nested", images.len());
}
