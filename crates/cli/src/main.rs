//! The `shamba` binary. Its code is in this package's library, so that tests can call it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    shamba_cli::main()
}
