//! Repairs that do not complete, and repairs over a disk that fails. The remains of a killed repair
//! do not open as a database, or are complete; unreadable data is reported as lost.

use shamba::Durability;
use shamba::env::{Effect, FaultFs, FaultRule, OpKind, SimFs};
use shamba_tests::files::put_files;

use super::*;

#[test]
fn a_killed_repair_leaves_no_database_and_the_next_one_takes_its_place() {
    let mut tally = Tally::default();
    for index in 0..3 {
        let mut rng = Rng::with_seed(seed::mixed(0xdead, index));
        let subject = subject(&mut rng, index as usize);
        let sim = SimFs::new();
        put_files(&sim, &subject.files);
        sim.write_back();
        let before = sim.op_count();
        let env = Env::deterministic(Arc::new(sim.clone()), 2);
        let repair = |env: &Env| shamba::repair_within(env, Path::new(HOME), Path::new(OUT), LITTLE_BYTES);
        let report = repair(&env).expect("repair");
        let (whole, _) = contents(&env, subject.rules).expect("whole");
        assert!(report.is_complete() && whole == subject.state());
        let points = sim.crash_points(before, 7);
        let step = points.len().div_ceil(400).max(1);
        for (number, (call, policy)) in points.into_iter().enumerate().step_by(step) {
            let told = || format!("case {index}, {policy:?} behind call {call}: {:?}", sim.describe_op(call));
            let disk = sim.crash(call, &policy);
            let env = Env::deterministic(Arc::new(disk), 5);
            tally.add("killed repairs", 1);
            match contents(&env, subject.rules) {
                Ok((state, check)) => {
                    assert!(state == whole && check.is_clean(), "{}: a part opens", told());
                    tally.add("whole", 1);
                }
                Err(error) => {
                    let is_told =
                        error.kind() == ErrorKind::Corruption && error.to_string().contains("did not finish");
                    assert!(is_told || error.kind() == ErrorKind::NotFound, "{}: {error:?}", told());
                    tally.add(if is_told { "marked" } else { "not begun" }, 1);
                    if is_told {
                        // It is not accepted as a database to repair, either.
                        let again = shamba::repair(&env, Path::new(OUT), Path::new("/elsewhere"));
                        assert_eq!(again.map(drop).expect_err("a part").kind(), ErrorKind::Corruption);
                    }
                    if number % (8 * step) == 0 {
                        repair(&env).unwrap_or_else(|error| panic!("{}: the next repair: {error}", told()));
                        let (state, check) = contents(&env, subject.rules).expect("whole");
                        assert!(state == whole && check.is_clean(), "{}: the next repair", told());
                        tally.add("repaired again", 1);
                    }
                }
            }
        }
    }
    tally.tell("repair-killed", "suite E, killed repairs");
    tally.require(&[("killed repairs", 600), ("marked", 300), ("repaired again", 40), ("whole", 1)]);
}

/// A log with long values, whose positions a repair keeps: any read of it may fail.
#[test]
fn a_log_that_cannot_be_read_is_told_and_the_rest_is_kept() {
    let long = |number: u8| vec![number; 150_000];
    let fs = MemFs::new();
    let env = Env::deterministic(Arc::new(fs.clone()), 1);
    let db = Db::builder(HOME).env(env).info_log(false).open().expect("create");
    db.put("in a table", "1").expect("put");
    db.flush().expect("flush");
    for number in 0..4u8 {
        db.put(format!("long {number}"), long(number)).expect("put");
        db.put(format!("short {number}"), number.to_string()).expect("put");
    }
    let mut batch = db.batch();
    batch.put("last", "1");
    batch.commit_with(Durability::Sync).expect("sync");
    drop(db);
    let files = files_of(&fs);
    let logs = files.iter().filter(|(name, _)| name.ends_with(".log"));
    let (log, _) = logs.max_by_key(|(_, bytes)| bytes.len()).expect("a log");
    let log = format!("{HOME}/{log}");
    let (mut lost_values, mut nth) = (0, 0);
    loop {
        let disk = disk_of(&files);
        let faulty = FaultFs::new(Arc::new(disk.clone()), 1);
        faulty.add_rule(FaultRule::nth(nth, Effect::Eio).on(&[OpKind::Read]).at_path(&log));
        let env = Env { vfs: Arc::new(faulty.clone()), ..Env::deterministic(Arc::new(disk.clone()), 1) };
        let report = shamba::repair_within(&env, Path::new(HOME), Path::new(OUT), 64 << 10)
            .unwrap_or_else(|error| panic!("read {nth} of a log: {error}"));
        if faulty.faults_injected() == 0 {
            assert!(report.is_complete(), "{report:?}");
            break;
        }
        nth += 1;
        faulty.clear_rules();
        let (state, _) = contents(&env, Rules::of(0)).expect("repaired");
        let state = &state[SPACES[0]];
        let expected = (0..4u8).flat_map(|number| {
            let (key, value) = (number.to_string(), number.to_string());
            [(format!("long {key}"), long(number)), (format!("short {key}"), value.into_bytes())]
        });
        for (key, value) in expected.chain([("last".to_owned(), b"1".to_vec())]) {
            let is_lost = report.lost.iter().any(|lost| lost.contains(SPACES[0], key.as_bytes()));
            let got = state.get(key.as_bytes());
            assert!(got == Some(&value) || (got.is_none() && is_lost), "read {nth}: {key}: {report:?}");
        }
        assert!(state.contains_key(b"in a table".as_slice()), "read {nth}");
        lost_values += report.lost.iter().filter(|lost| lost.loss == Loss::Entries).count();
    }
    assert!(nth > 20 && lost_values > 4, "{nth} reads, {lost_values} long values lost");
}
