//! Checks of numbers that come from outside the model. An error names the value and the reason;
//! nothing is computed.
//!
//! A comparison with NaN is false and a range never contains it, so every check here also rejects
//! NaN.
//!
//! Not here: the bounds of the design's knobs ([`crate::Design::validate`]).

/// Accepts a rate, a cost or a number of bits: finite, and at least 0.
pub(crate) fn not_negative(what: &str, value: f64) -> Result<(), String> {
    if (0.0..f64::INFINITY).contains(&value) {
        return Ok(());
    }
    Err(format!("{what} must be a finite number of at least 0, not {value}"))
}

/// Accepts a divisor: finite, and above 0.
pub(crate) fn positive(what: &str, value: f64) -> Result<(), String> {
    if value > 0.0 && value < f64::INFINITY {
        return Ok(());
    }
    Err(format!("{what} must be a finite number above 0, not {value}"))
}

/// Accepts a share or a probability: from 0 to 1.
pub(crate) fn share(what: &str, value: f64) -> Result<(), String> {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    Err(format!("{what} must be from 0 to 1, not {value}"))
}

/// Adds the list's name and index to the error of a check; the text is built only on failure.
pub(crate) fn of_list(list: &str, at: usize, checked: Result<(), String>) -> Result<(), String> {
    checked.map_err(|error| format!("{list} {at}: {error}"))
}
