//! Every example runs to its end. `cargo test` has built them.

use std::path::PathBuf;
use std::process::Command;

/// Path of an example's program, next to the programs of tests.
fn program(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().expect("this test is a program");
    path.pop();
    path.pop();
    path.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

#[test]
fn examples_run_to_their_end() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .expect("the folder of examples")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort_unstable();
    assert!(names.len() >= 6, "{names:?}");
    for name in names {
        let program = program(&name);
        let run = Command::new(&program).output();
        let run = run.unwrap_or_else(|error| {
            panic!("{}: {error}; `cargo build -p shamba --examples` builds it", program.display())
        });
        let text = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{name}: {}\n{text}", run.status);
        assert!(!run.stdout.is_empty(), "{name} prints what it did");
    }
}
