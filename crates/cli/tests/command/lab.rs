//! Tests of `shamba lab`, which has moved: a usage error names the new command, whatever the
//! arguments.

use crate::support::run;

#[test]
fn the_old_command_names_its_successor() {
    for words in [&["lab"][..], &["lab", "list"], &["lab", "run", "hash-sharing-fig1", "--scale", "quick"]] {
        let error = run(words.iter().copied()).fails(64);
        assert!(error.contains("cargo run --release -p shamba-lab -- list"), "{error}");
    }
}
