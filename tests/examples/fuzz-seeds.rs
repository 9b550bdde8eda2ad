//! Writes the seeds of a fuzz target: `fuzz-seeds TARGET DIRECTORY`, started by `cargo xtask fuzz`.
//! Without arguments it lists the targets.

use std::process::ExitCode;

use shamba_tests::fuzz;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.is_empty() {
        fuzz::TARGETS.iter().for_each(|target| println!("{}", target.name));
        return ExitCode::SUCCESS;
    }
    let [target, directory] = words.as_slice() else {
        eprintln!("usage: fuzz-seeds TARGET DIRECTORY");
        return ExitCode::FAILURE;
    };
    let Some(target) = fuzz::target(target) else {
        let names: Vec<&str> = fuzz::TARGETS.iter().map(|target| target.name).collect();
        eprintln!("no target {target:?}; there are {}", names.join(", "));
        return ExitCode::FAILURE;
    };
    // As the fuzzer reads them.
    if target.is_decoder && !fuzz::make_checksums_equal() {
        eprintln!("this build cannot make checksums equal: it lacks debug assertions");
        return ExitCode::FAILURE;
    }
    for (number, bytes) in fuzz::seeds(target).into_iter().enumerate() {
        let path = std::path::Path::new(directory).join(format!("seed-{number}"));
        if let Err(error) = std::fs::write(&path, bytes) {
            eprintln!("{}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
