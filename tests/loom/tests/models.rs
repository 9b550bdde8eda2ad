//! Suite H, every schedule: each model holds under all of them, and fails under one with a
//! mutation.
//!
//! Each mutation runs in a separate process, which must fail with the expected message.
//! `SHAMBA_LOOM_BREAK=orderings cargo test -p shamba-loom digest_index::holds` runs one by hand.
//! `LOOM_MAX_PREEMPTIONS=4` explores more than the gate.

use std::process::Command;

use shamba_loom::broken::{Broken, VARIABLE};
use shamba_loom::{explore, models};
use shamba_tests::tally::Tally;

fn holds(name: &str, model: fn()) {
    let schedules = explore::every_schedule(model);
    let story = "suite H, every schedule with at most three preemptions";
    Tally::of(&[("models", 1), ("schedules", schedules)]).tell(&format!("loom-{name}"), story);
    assert!(schedules > 1, "one schedule is none");
}

/// Runs the test with a mutation: it must fail with this message.
fn bites(test: &str, broken: Broken, complaint: &str) {
    let this = std::env::current_exe().expect("a test knows its own binary");
    let mut command = Command::new(this);
    command.args([test, "--exact", "--nocapture"]).env(VARIABLE, broken.name()).env_remove("SHAMBA_TALLIES");
    let output = command.output().expect("it starts");
    let said =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(!output.status.success(), "{test} passes with broken {}", broken.name());
    assert!(said.contains(complaint), "{test} with broken {} says something else: {said}", broken.name());
}

/// A model and, for each of its mutations, the resulting message.
macro_rules! model {
    ($name:ident, $model:path, $($broken:ident: $complaint:literal),+) => {
        mod $name {
            #[test]
            fn holds() {
                super::holds(stringify!($name), $model);
            }

            #[test]
            fn bites() {
                $(super::bites(concat!(stringify!($name), "::holds"), super::Broken::$broken, $complaint);)+
            }
        }
    };
}

model!(digest_index, super::models::memtable::index, Orderings: "Causality violation");
model!(grace_periods, super::models::epochs::grace_periods, Consistency: "a reader of block");
model!(cache_sections, super::models::blocks::sections, Usage: "outlives its section");
model!(large_cache_sections, super::models::blocks::large_sections, Usage: "outlives its section");
model!(cache_pins, super::models::blocks::pins, Steps: "block");
model!(group_commit, super::models::writers::group_commit, Wakeups: "deadlock", Usage: "somebody leads");
model!(snapshots, super::models::readers::snapshots, Usage: "a merge dropped what it sees");
model!(filter_fence, super::models::readers::filters, Usage: "sees an entry change");
model!(ledger, super::models::accounts::ledger, Steps: "released");
model!(pressure, super::models::accounts::pressure, Usage: "a writer pays");
model!(idle_slots, super::models::scans::idle_slots, Steps: "keeps an old view");
model!(fresh_slots, super::models::scans::fresh_slots, Usage: "keeps an old view");
model!(views, super::models::views::rotation_and_install, Usage: "a change was lost");
model!(files_of_versions, super::models::views::files_of_versions, Usage: "a reader's file is gone");
