//! Suites C and D for databases that share threads and memory: the failures of one must not harm
//! the other.
//!
//! Without threads: each call of one database fails in turn, while the other takes turns with it.
//! With threads: one meets failing calls, a full disk, a close, a drop or a power cut, and the
//! other one must go on with its rounds all the time; see `shamba_tests::shared`.

use shamba::MergePolicy;
use shamba::env::{Effect, Persistence};
use shamba_tests::brief::is_brief;
use shamba_tests::fault::{self, Fault};
use shamba_tests::pool;
use shamba_tests::seed::{self, Rerun, mixed};
use shamba_tests::shared::{Ending, Life, Trouble};
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
