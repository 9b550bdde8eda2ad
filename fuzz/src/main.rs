//! A fuzz target under libFuzzer: `cargo xtask fuzz TARGET` builds and starts it, coverage-guided,
//! on stable Rust.
//!
//! The environment variable `SHAMBA_FUZZ_TARGET` selects the target. Not here: the targets
//! (`shamba_tests::fuzz`).
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use shamba_tests::fuzz::{self, Target};

fuzz_target!(|bytes: &[u8]| {
    static TARGET: OnceLock<&'static Target> = OnceLock::new();
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("SHAMBA_FUZZ_TARGET").unwrap_or_default();
        let target = fuzz::target(&name);
        let target = target.unwrap_or_else(|| panic!("SHAMBA_FUZZ_TARGET={name:?} names no target"));
        assert!(!target.is_decoder || fuzz::make_checksums_equal(), "nothing would get behind the checksums");
        target
    });
    target.run(bytes);
});
