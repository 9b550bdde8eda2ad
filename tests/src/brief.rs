//! Whether the suites run briefly: a small part of each long test, enough to detect one defect.
//!
//! `cargo xtask planted` sets the variable when it runs a test against a patched copy of the
//! sources. Not here: the patches (`tests/planted`).

/// The environment variable that asks for a small part; its value does not matter.
pub const VARIABLE: &str = "SHAMBA_BRIEF";

/// Whether this process runs the small part only.
pub fn is_brief() -> bool {
    std::env::var_os(VARIABLE).is_some()
}
