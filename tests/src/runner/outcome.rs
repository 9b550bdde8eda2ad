//! Outcomes of runs: the operation that failed, and panics as errors.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Converts a panic into an error.
///
/// # Errors
/// The error of `work`, or the panic's message.
pub fn caught<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(format!("panic: {}", panic_message(&*panic))))
}

/// The operation that failed, and the reason.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its index; the number of operations if the comparison at the end failed.
    pub at: usize,
    /// The reason.
    pub message: String,
}

/// The text of a caught panic.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message").to_owned()
}
