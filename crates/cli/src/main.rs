//! The `shamba` binary: all of it is in the library of this package, so that tests reach it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    shamba_cli::main()
}
