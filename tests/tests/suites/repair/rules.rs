//! Rules of a repaired database that need more than reads: its stream of changes, and the
//! compaction filter of one keyspace.

use shamba::ChangePosition;
use shamba::filter::Verdict;
use shamba_tests::filters::{has_operands, ruled, verdict};
use shamba_tests::follower::Follower;
use shamba_tests::oracle::Moment;

use super::*;

/// Checks that positions of the original are refused, and that the stream has the content that was
/// repaired, and then what is written. Writes to the database.
pub fn stream(
    subject: &Subject,
    env: &Env,
    (db, report, state): (&Db, &RepairReport, &State),
    tally: &mut Tally,
) -> Result<(), String> {
    for position in &subject.positions {
        match db.changes_since(*position) {
            Err(error) if error.kind() == ErrorKind::Gone => tally.add("positions that are refused", 1),
            Err(error) => return Err(format!("position {position} of the original: {error:?}")),
            Ok(_) => {
                let now = db.change_position();
                return Err(format!(
                    "position {position} of the original is accepted; the present one is {now}"
                ));
            }
        }
    }
    let failed = |error: shamba::Error| format!("the stream of the repaired database: {error:?}");
    let oldest = db.oldest_change_position().map_err(failed)?;
    // Otherwise the logs that the repair wrote are gone, or a keyspace has a name of its own.
    if !(report.manifest && subject.rules.keeps_logs) {
        return Ok(());
    }
    let now = Moment { commit: 0, ms: env.clock.unix_ms(), turn: 0 };
    let mut follower = Follower::from(oldest, false);
    follower.expect_state(db, state, now)?;
    db.put_with("written after the repair", "1", shamba::Durability::Sync).map_err(failed)?;
    let mut state = state.clone();
    let default = state.entry(SPACES[0].to_owned()).or_default();
    default.insert(b"written after the repair".to_vec(), b"1".to_vec());
    follower.expect_state(db, &state, now)?;
    tally.add("streams of repaired content", 1);
    tally.add("changes of repaired content", follower.taken);
    Ok(())
}

/// Checks that the keyspace takes its filter again, which makes its verdicts in a compaction, and
/// no others.
pub fn filter(subject: &Subject, env: &Env, state: &State, tally: &mut Tally) -> Result<(), String> {
    let name = SPACES[FILTERED];
    let Some(before) = state.get(name).filter(|_| subject.rules.is_filtered) else { return Ok(()) };
    let failed = |error: shamba::Error| format!("the repaired database with its filter: {error:?}");
    let operators = || subject.rules.operators();
    let builder =
        subject.rules.merging_with(Db::builder(OUT).env(env.clone()).info_log(false), |of| {
            match of == name {
                true => ruled(operators()),
                false => operators(),
            }
        });
    let db = builder.create_if_missing(false).open().map_err(failed)?;
    let keyspace = db.keyspace(name).map_err(failed)?;
    for round in 0..2 {
        // The first one folds operands, and does not ask about what it has folded.
        keyspace.compact().map_err(|error| format!("compaction {round}: {error:?}"))?;
    }
    for (key, value) in before {
        let left = match verdict(key, value) {
            Verdict::Replace(value) => Some(value),
            Verdict::Remove => None,
            _ => Some(value.clone()),
        };
        let got = keyspace.get(key).map_err(failed)?;
        // Below operands, a base that will expire stays as it is.
        let is_left_alone = has_operands(value) && got.as_deref() == Some(&value[..]);
        if got.as_deref() != left.as_deref() && !is_left_alone {
            let (key, value) = (key.escape_ascii(), value.escape_ascii());
            return Err(format!("{key} of {name} was {value}, and is {got:?} after a compaction"));
        }
        let is_changed = got.as_deref() == left.as_deref() && left.as_ref() != Some(value);
        tally.add("verdicts after a repair", u64::from(is_changed));
    }
    Ok(())
}

/// A database that was opened many times, each time after an unclean end, which begins an epoch of
/// the stream. Returns its files and positions.
fn of_many_epochs(opens: usize) -> (Files, Vec<ChangePosition>) {
    let fs = MemFs::new();
    let env = Env::deterministic(Arc::new(fs.clone()), 1);
    let mut positions = Vec::new();
    for open in 0..opens {
        let builder = Db::builder(HOME).env(env.clone()).info_log(false);
        let db = builder.keep_log(16 << 20, std::time::Duration::from_secs(3_600)).open().expect("open");
        if open == 0 {
            db.put("key", "value").expect("put");
        }
        positions.push(db.change_position());
    }
    (files_of(&fs), positions)
}

/// The numbers of the original that a repair can see are those of files. Here the manifest is lost,
/// and the newest logs with it.
#[test]
fn no_position_from_before_a_repair_is_valid_after_it() {
    let mut tally = Tally::default();
    for (opens, lost) in (1..12).flat_map(|opens| (0..6).map(move |lost| (opens, lost))) {
        let (mut files, positions) = of_many_epochs(opens);
        files.retain(|name, _| name != "CURRENT" && !name.starts_with("MANIFEST"));
        let logs: Vec<String> = files.keys().filter(|name| name.ends_with(".log")).cloned().collect();
        logs.iter().rev().take(lost).for_each(|log| drop(files.remove(log)));
        if files.keys().all(|name| name == "LOCK") {
            continue;
        }
        let env = Env::deterministic(Arc::new(disk_of(&files)), 2);
        let told = format!("{opens} opens, {lost} logs lost");
        shamba::repair(&env, Path::new(HOME), Path::new(OUT))
            .unwrap_or_else(|error| panic!("{told}: {error:?}"));
        let builder = Db::builder(OUT).env(env).info_log(false).create_if_missing(false);
        let db = builder.open().unwrap_or_else(|error| panic!("{told}: {error:?}"));
        let now = db.change_position();
        for position in positions {
            assert_ne!(
                position.epoch, now.epoch,
                "{told}: position {position} may be taken for one of now, {now}"
            );
            let refused = db.changes_since(position).expect_err("of another database");
            assert_eq!(refused.kind(), ErrorKind::Gone, "{told}: {position}: {refused}");
            tally.add("positions", 1);
        }
        tally.add("repairs", 1);
    }
    tally.tell("repair-positions", "suite E, positions of before a repair");
    tally.require(&[("repairs", 30), ("positions", 200)]);
}
