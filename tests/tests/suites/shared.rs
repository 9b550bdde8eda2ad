//! Suites C and D for databases that share threads and memory: the failures of one must not harm
//! the other.
//!
//! Without threads: each call of one database fails in turn, while the other takes turns with it.
//! With threads: one meets failing calls, a full disk, a close, a drop or a power cut, and the
//! other one must go on with its rounds all the time; see `shamba_tests::shared`. And one that
//! always has something to flush leaves the other its turns, which is counted in steps.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shamba::env::{Effect, Env, MemFs, Persistence};
use shamba::{Event, EventListener, MergePolicy};
use shamba_tests::brief::is_brief;
use shamba_tests::fault::{self, Fault};
use shamba_tests::pool;
use shamba_tests::runner::HOME;
use shamba_tests::seed::{self, Rerun, mixed};
use shamba_tests::shared::{Ending, FLOOR_BYTES, Life, Shares, Trouble};
use shamba_tests::tally::Tally;
use shamba_tests::vectors::Vector;

const EFFECTS: [(Effect, Persistence); 4] = [
    (Effect::Eio, Persistence::Once),
    (Effect::Eio, Persistence::Sticky),
    (Effect::Enospc, Persistence::Sticky),
    (Effect::Emfile, Persistence::Once),
];

/// Stride of the failing calls; the first one depends on the effect.
const CALL_EACH: u64 = 9;

#[test]
fn every_call_of_one_fails_while_the_other_works() {
    let base = seed::base(0x5ba7);
    let writes = if is_brief() { 12 } else { 21 };
    let steps = fault::script(base, writes);
    let case = |way: usize| {
        let (effect, persistence) = EFFECTS[way];
        let vector = Vector::plain(MergePolicy::ALL[way % MergePolicy::ALL.len()]);
        let mut tally = Tally::default();
        for nth in (2 * way as u64..).step_by(CALL_EACH as usize) {
            let fault = Fault::Call { nth, effect, persistence };
            let (seen, neighbour) = fault::checked_with_neighbour(&vector, &steps, fault, mixed(base, nth))
                .map_err(|error| format!("seed {base}: {error}"))?;
            if seen.faults == 0 {
                break;
            }
            tally.add("lives with a fault", 1);
            tally.add("engine calls that failed", seen.failures);
            for of in ["operations", "flushes", "checkpoints"] {
                tally.add(&format!("{of} of the other database"), neighbour.get(of));
            }
        }
        Ok(tally)
    };
    let ways = if is_brief() { 2 } else { EFFECTS.len() };
    let tallies = pool::run(ways, case).unwrap_or_else(|error| panic!("{error}"));
    let total = Tally::sum(&tallies);
    total.tell("shared-faults", &format!("suite D, one of two that share, seed {base}"));
    if !is_brief() {
        total.require(&[
            ("lives with a fault", 200),
            ("engine calls that failed", 500),
            ("operations of the other database", 8_000),
            ("flushes of the other database", 1_000),
            ("checkpoints of the other database", 10),
        ]);
    }
}

/// Lives with each kind of failure and each end, with other options.
const LIVES_OF_A_KIND: usize = 4;

#[test]
fn one_fails_while_the_other_works() {
    const TEST: &str = "shared::one_fails_while_the_other_works";
    let base = seed::base(0x5ba8);
    let lives: Vec<(Trouble, Ending)> =
        Trouble::ALL.into_iter().flat_map(|trouble| Ending::ALL.map(|ending| (trouble, ending))).collect();
    let case = |index: usize| {
        let (trouble, ending) = lives[index % lives.len()];
        let rerun = Rerun { test: TEST, seed: base, vector: index };
        Life::run(trouble, ending, mixed(base, index as u64))
            .map_err(|error| format!("life {index}: {error}\n  rerun: {rerun}"))
    };
    if let Some(index) = seed::only_vector() {
        println!("{}", case(index).unwrap_or_else(|error| panic!("{error}")));
        return;
    }
    // In a brief run, one of each kind of failure, and each end twice.
    let ends = Ending::ALL.len();
    let life = |index: usize| if is_brief() { index * ends + index % ends } else { index };
    let count = if is_brief() { Trouble::ALL.len() } else { lives.len() * LIVES_OF_A_KIND };
    let tallies = pool::run(count, |index| case(life(index))).unwrap_or_else(|error| panic!("{error}"));
    let mut total = Tally::default();
    for (index, tally) in tallies.iter().enumerate() {
        // Checked for each life: one in which nothing failed must not be hidden by the others.
        println!("life {}: {:?}", life(index), lives[life(index) % lives.len()]);
        tally.require(&[
            ("calls that failed", 1),
            ("writes acknowledged", 100),
            ("rounds of the healthy one", 13),
            ("flushes of the healthy one", 13),
            ("compactions of the healthy one", 3),
        ]);
        total.merge(tally);
    }
    total.tell("shared-lives", &format!("suites C and D, one of two of a pool, seed {base}"));
    if !is_brief() {
        total.require(&[("lives", 128), ("calls that failed", 700), ("engine calls that failed", 700)]);
    }
}

/// The beginnings of flushes, in their order, and the requests of the quiet database.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Moment {
    Asked,
    OfBusy,
    OfQuiet,
}

struct Moments(Arc<Mutex<Vec<Moment>>>, Moment);

impl EventListener for Moments {
    fn event(&self, event: &Event) {
        if matches!(event, Event::FlushBegin { .. }) {
            self.0.lock().expect("nobody panics with it").push(self.1);
        }
    }
}

/// Requests of a flush, and flushes of the other database after which it stops.
const REQUESTS: usize = 30;
const BUSY_FLUSHES_MAX: usize = 3_000;

/// A member is visited after at most one step of each other one. From outside, more steps can come
/// between, while the thread that asks for a flush is not scheduled: so a quarter of the requests
/// does not count.
#[test]
fn one_that_always_has_work_leaves_the_other_its_turns() {
    let shares = Shares::new(4 * FLOOR_BYTES, 1);
    let moments = Arc::new(Mutex::new(Vec::new()));
    let open = |moment: Moment| {
        let env = Env { vfs: Arc::new(MemFs::new()), ..Env::real() };
        let mut vector = Vector::plain(MergePolicy::Tiering);
        // Neither compactions nor sealed memtables hold up its writers for long.
        (vector.write_buffer, vector.immutable, vector.l0) = (2 << 10, Some(8), Some((4_000, 5_000)));
        let builder = shares.give(vector.builder(Path::new(HOME), &env));
        builder.event_listener(Arc::new(Moments(Arc::clone(&moments), moment))).open().expect("open")
    };
    // The busy one comes first in the pool.
    let (busy, quiet) = (open(Moment::OfBusy), open(Moment::OfQuiet));
    let note = |moment| moments.lock().expect("nobody panics with it").push(moment);
    let count =
        |moment| moments.lock().expect("nobody panics with it").iter().filter(|of| **of == moment).count();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = |writer: usize| {
            let (busy, stop, count) = (&busy, &stop, &count);
            scope.spawn(move || {
                for number in 0u64.. {
                    let is_over = number % 16 == 0 && count(Moment::OfBusy) >= BUSY_FLUSHES_MAX;
                    if stop.load(Ordering::Acquire) || is_over {
                        break;
                    }
                    busy.put(format!("{writer}/{}", number % 100), [1; 400]).expect("put");
                }
            })
        };
        let writers: Vec<_> = (0..3).map(writer).collect();
        while count(Moment::OfBusy) < 20 {
            assert!(!writers.iter().all(|writer| writer.is_finished()), "the writers ended");
            std::thread::sleep(Duration::from_millis(1));
        }
        for request in 0..REQUESTS {
            quiet.put("key", request.to_string()).expect("put");
            note(Moment::Asked);
            quiet.flush().expect("flush");
        }
        stop.store(true, Ordering::Release);
    });
    let moments = moments.lock().expect("nobody panics with it");
    let mut between: Vec<usize> = moments
        .split(|moment| *moment == Moment::Asked)
        .skip(1)
        .map(|after| after.iter().take_while(|moment| **moment == Moment::OfBusy).count())
        .collect();
    between.sort_unstable();
    let tally = Tally::of(&[
        ("requests of a flush", between.len() as u64),
        ("flushes of the busy database", moments.iter().filter(|of| **of == Moment::OfBusy).count() as u64),
    ]);
    tally.tell("shared-turns", &format!("turns of a flush thread: steps between {between:?}"));
    tally.require(&[("requests of a flush", REQUESTS as u64), ("flushes of the busy database", 30)]);
    let steps_max = between[REQUESTS * 3 / 4];
    assert!(
        steps_max <= 2,
        "a quarter of the requests waited for at least {steps_max} steps of the other database"
    );
}
