//! Injected defects: each in turn is switched on, and the test that covers it must fail.
//!
//! Not here: the defects and their tests (`tests`, example `planted`).

use std::process::Command;

use crate::tidy;

/// Runs the tests against injected defects. These exist only with debug assertions, so this is not
/// a release build.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--package", "shamba-tests", "--example", "planted", "--"]);
    let status = command.args(arguments).current_dir(tidy::root()).status();
    let status = status.map_err(|error| format!("cargo did not start: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("planted {} failed with {status}", arguments.join(" ")))
    }
}
