//! Suite N, a few seconds of it: one database under all features at the same time, on threads and
//! real files. On demand for any time, with a watch over memory, descriptors and files
//! (`cargo xtask steady`).

use std::time::Duration;

use shamba_tests::seed;
use shamba_tests::soak::steady;

#[test]
fn one_database_under_all_features_holds_what_was_written() {
    let seconds = if std::env::var_os("SHAMBA_BRIEF").is_some() { 1 } else { 4 };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let seed = seed::base(0x57ea);
    let tally = steady::run(dir.path(), seed, Duration::from_secs(seconds), false)
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    tally.tell("steady-brief", "one database under all features");
    for what in ["operations", "transactions", "snapshots compared", "batches followed"] {
        assert!(tally.get(what) > 0, "no {what}: {tally}");
    }
}
