//! Checks of numbers that come from outside: an error says what is wrong and why, and nothing is computed.
//!
//! A comparison with NaN is false and a range never contains it, so every check here refuses it too.
//!
//! Not here: the bounds of the design's knobs ([`crate::Design::validate`]).

/// A rate, a cost, a number of bits: finite, and 0 or more.
pub(crate) fn not_negative(what: &str, value: f64) -> Result<(), String> {
    if (0.0..f64::INFINITY).contains(&value) {
        return Ok(());
    }
    Err(format!("{what} must be a finite number of at least 0, not {value}"))
}

/// What something is divided by: finite, and above 0.
pub(crate) fn positive(what: &str, value: f64) -> Result<(), String> {
    if value > 0.0 && value < f64::INFINITY {
        return Ok(());
    }
    Err(format!("{what} must be a finite number above 0, not {value}"))
}

/// A share or a probability: from 0 to 1.
pub(crate) fn share(what: &str, value: f64) -> Result<(), String> {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    Err(format!("{what} must be from 0 to 1, not {value}"))
}

/// The same check for number `at` of a list; the name is only put together when it is needed.
pub(crate) fn of_list(list: &str, at: usize, checked: Result<(), String>) -> Result<(), String> {
    checked.map_err(|error| format!("{list} {at}: {error}"))
}
