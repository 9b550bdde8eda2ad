//! Suite O, its start: defects planted in the engine must make suites fail.
//!
//! A child process runs one suite with one defect switched on ([`shamba::planted`], only in builds with
//! debug assertions) and has to fail. Forgotten syncs are planted below the engine, in `crash`.
//!
//! Not here: `FlushWithoutLogSync`. All keyspaces are sealed together and flushed in one edit, so a generation's
//! tables hold all of its log: no crash can show that the dead log was not synced.

use std::process::{Command, Stdio};

use shamba::planted::{Defect, plant};

const VARIABLE: &str = "SHAMBA_PLANT";

const DEFECTS: [(&str, Defect, &str); 4] = [
    ("second-hash", Defect::SecondHash, "hash_sharing::one_hash_a_lookup"),
    ("ack-before-sync", Defect::AckBeforeSync, "crash::every_crash_leaves_a_legal_state"),
    ("ignore-snapshots", Defect::IgnoreSnapshots, "model::operations_against_the_oracle"),
    ("drop-tombstones", Defect::DropTombstones, "model::operations_against_the_oracle"),
];

/// Switches on the defect that the environment names. Every suite that must kill one calls it first.
pub fn plant_from_environment() {
    let Ok(name) = std::env::var(VARIABLE) else { return };
    let known = DEFECTS.iter().find(|(known, ..)| *known == name);
    let (_, defect, _) = known.unwrap_or_else(|| panic!("{VARIABLE}={name:?} names no defect"));
    plant(*defect, true);
}

/// Whether this process runs with a defect.
pub fn is_planted() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

#[test]
fn each_planted_defect_is_caught() {
    if !cfg!(debug_assertions) || is_planted() {
        return;
    }
    let binary = std::env::current_exe().expect("a test knows its own binary");
    for (name, _, test) in DEFECTS {
        let output = Command::new(&binary)
            .args([test, "--exact", "--nocapture"])
            .env(VARIABLE, name)
            .stdin(Stdio::null())
            .output()
            .expect("the test binary starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("running 1 test"), "{test} is not the name of a test:\n{text}");
        assert!(!output.status.success(), "{test} passes with the defect {name} planted");
    }
}
