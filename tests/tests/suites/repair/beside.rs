//! Two concurrent users of the new database's directory: the one that was told that it owns the
//! directory keeps it.
//!
//! One of the two is stopped before its n-th file system call, for each n, and the other does all
//! of its work there. So it is known what the first had checked when the second came.

use std::fmt;
use std::sync::Mutex;

use shamba::env::{Clock, Effect, FaultFs, FaultRule, OpKind};

use super::*;

/// A clock on which the only sleep runs the other user's work.
struct Meanwhile<F>(Mutex<Option<F>>);

impl<F> fmt::Debug for Meanwhile<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl<F: FnOnce() + Send> Clock for Meanwhile<F> {
    fn now_us(&self) -> u64 {
        0
    }

    fn unix_ms(&self) -> u64 {
        0
    }

    fn sleep_us(&self, _: u64) {
        let act = self.0.lock().expect("no panic").take();
        act.expect("the rule strikes once")();
    }

    fn wait_ns(&self, _: u64) {}
}

/// The work of the other user, and its result.
type Outcome<T> = Arc<Mutex<Option<shamba::Result<T>>>>;

/// An environment in which `act` runs before the `nth` call of any kind; returns its result.
fn stopped_at<T: Send + 'static>(
    disk: &MemFs,
    nth: u64,
    act: impl FnOnce(&Env) -> shamba::Result<T> + Send + 'static,
) -> (Env, Outcome<T>) {
    let outcome = Outcome::default();
    let (told, theirs) = (Arc::clone(&outcome), Env::deterministic(Arc::new(disk.clone()), 3));
    let clock = Meanwhile(Mutex::new(Some(move || {
        let did = act(&theirs);
        *told.lock().expect("no panic") = Some(did);
    })));
    let faulty = FaultFs::with_clock(Arc::new(disk.clone()), 1, Arc::new(clock));
    faulty.add_rule(FaultRule::nth(nth, Effect::LatencyUs(1)));
    let mine = Env::deterministic(Arc::new(disk.clone()), 2);
    (Env { vfs: Arc::new(faulty), ..mine }, outcome)
}

fn repair_into_out(env: &Env) -> shamba::Result<RepairReport> {
    shamba::repair_within(env, Path::new(HOME), Path::new(OUT), LITTLE_BYTES)
}

fn create_in_out(env: &Env) -> shamba::Result<Db> {
    Db::builder(OUT).env(env.clone()).info_log(false).experimental(|e| e.error_if_exists(true)).open()
}

/// Writes to the database that it made, and closes it.
fn use_it(db: Db) -> shamba::Result<()> {
    db.put("theirs", "1")?;
    db.close()
}

/// Runs a repair into `OUT` with `act` before each of its calls in turn: either the repair or `act`
/// gets the directory, and keeps it.
fn each_moment<T: Send + 'static>(
    what: &str,
    act: fn(&Env) -> shamba::Result<T>,
    finish: fn(T) -> shamba::Result<()>,
) {
    let mut rng = Rng::with_seed(seed::mixed(0xbe51de, 0));
    let subject = subject(&mut rng, 0);
    let whole = subject.state();
    let (mut theirs, mut ours) = (0, 0);
    for nth in 0.. {
        let disk = disk_of(&subject.files);
        let (env, outcome) = stopped_at(&disk, nth, act);
        let repaired = repair_into_out(&env);
        let Some(other) = outcome.lock().expect("no panic").take() else {
            repaired.expect("nobody else was there");
            break;
        };
        let told = format!("{what} before call {nth}, which gave {:?}", other.as_ref().map(drop));
        let is_theirs = other.is_ok();
        // Only now: if it has a database open, it was open all the time.
        if let Ok(made) = other {
            finish(made).unwrap_or_else(|error| panic!("{told}: {error}"));
        }
        let plain = Env::deterministic(Arc::new(disk.clone()), 4);
        let found = contents(&plain, subject.rules);
        match (is_theirs, repaired) {
            (true, Ok(_)) => panic!("{told}: both have it"),
            (true, Err(error)) => {
                theirs += 1;
                assert!([ErrorKind::Locked, ErrorKind::Invalid].contains(&error.kind()), "{told}: {error:?}");
                found.unwrap_or_else(|error| panic!("{told}: theirs does not open: {error}"));
            }
            (false, repaired) => {
                ours += 1;
                repaired.unwrap_or_else(|error| panic!("{told}: {error}"));
                let (state, check) = found.unwrap_or_else(|error| panic!("{told}: {error}"));
                assert!(state == whole && check.is_clean(), "{told}: not what was repaired");
            }
        }
    }
    assert!(theirs > 20 && ours > 20, "{what}: {theirs} times theirs, {ours} times ours");
}

#[test]
fn a_repair_that_comes_later_takes_nothing_from_one_that_has_ended() {
    each_moment("a repair", repair_into_out, drop_report);
}

fn drop_report(_: RepairReport) -> shamba::Result<()> {
    Ok(())
}

#[test]
fn a_repair_leaves_a_database_alone_that_somebody_has_open() {
    each_moment("an open database", create_in_out, use_it);
}

#[test]
fn a_repair_leaves_a_database_alone_that_somebody_has_closed() {
    each_moment("a database", |env| use_it(create_in_out(env)?), Ok);
}

/// The opener has checked and found no marker; then a repair begins there and stops half-way.
#[test]
fn a_part_of_a_repair_does_not_open_however_late_it_was_begun() {
    let mut rng = Rng::with_seed(seed::mixed(0xbe51de, 1));
    let subject = subject(&mut rng, 0);
    let mut parts = 0;
    for nth in 0.. {
        let disk = disk_of(&subject.files);
        let (env, outcome) = stopped_at(&disk, nth, |env| {
            let faulty = FaultFs::new(Arc::clone(&env.vfs), 1);
            // Its first table cannot be created: at that point the manifest and the log exist.
            faulty.add_rule(FaultRule::nth(0, Effect::Eio).on(&[OpKind::Create]).at_path(".sst").sticky());
            repair_into_out(&Env { vfs: Arc::new(faulty), ..env.clone() })
        });
        let opened = Db::builder(OUT).env(env).info_log(false).open();
        let Some(repaired) = outcome.lock().expect("no panic").take() else { break };
        let is_part = !matches!(&repaired, Err(error) if error.kind() == ErrorKind::Locked || error.kind() == ErrorKind::Invalid);
        assert!(repaired.is_err(), "call {nth}: its tables could not be made");
        match opened {
            Ok(_) => assert!(!is_part, "call {nth}: a part opens"),
            Err(error) => {
                parts += 1;
                assert!(is_part && error.to_string().contains("did not finish"), "call {nth}: {error}");
            }
        }
    }
    assert!(parts > 3, "{parts} parts");
}
