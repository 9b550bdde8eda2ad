//! Merge operators: what makes the value of a key from operands that were written without reading
//! it.
//!
//! A merge stores an operand as an entry of its own. A reader that meets one collects the operands
//! below it, down to the newest put, delete or range tombstone ([`chain`]), and lets the operator
//! of the keyspace fold them. Flushes and compactions fold as well, so that chains stay short
//! (`compaction::fold`).
//!
//! [`Merging`] is what a keyspace knows of its operator: the recorded name, and the code, if this
//! open was given it. [`builtin`] has the operators that need no code of the user.

pub mod builtin;
pub mod chain;
pub mod operator;

pub use operator::{AssociativeMerge, MergeOperator, MergeResult};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::error::{Error, Result};

/// The merge operator of a keyspace.
#[derive(Clone)]
pub struct Merging {
    name: String,
    operator: Option<Arc<dyn MergeOperator>>,
}

impl std::fmt::Debug for Merging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_given = self.operator.is_some();
        f.debug_struct("Merging").field("name", &self.name).field("is_given", &is_given).finish()
    }
}

impl Merging {
    /// An operator that this open was given.
    pub fn with(operator: Arc<dyn MergeOperator>) -> Self {
        Self { name: operator.name().to_owned(), operator: Some(operator) }
    }

    /// The operator of this recorded name: a built-in one, or else one without its code.
    pub fn recorded(name: &str) -> Self {
        Self { name: name.to_owned(), operator: builtin::named(name) }
    }

    /// The recorded name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the code is there.
    pub fn is_given(&self) -> bool {
        self.operator.is_some()
    }

    /// Checks an operand before it is written. Without the operator's code any operand of an
    /// allowed length is one.
    ///
    /// # Errors
    /// `Invalid`, naming the key and the operator.
    pub fn check(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        let bytes = operand.len();
        let checked = match &self.operator {
            _ if bytes > shamba_key::MAX_OPERAND_BYTES => {
                Err(format!("it has {bytes} bytes; the maximum is {}", shamba_key::MAX_OPERAND_BYTES))
            }
            Some(operator) => match guarded(|| operator.check(key, operand)) {
                Ok(checked) => checked,
                Err(panic) => Err(format!("the check panicked: {}", panic_text(panic.as_ref()))),
            },
            None => Ok(()),
        };
        checked.map_err(|detail| {
            let key = key.escape_ascii();
            Error::invalid(format!("not an operand of {:?} for key \"{key}\": {detail}", self.name))
        })
    }

    /// The value that the operands, oldest first, make of `base`.
    ///
    /// # Errors
    /// `Unsupported` without the operator's code; `Invalid` when the operator fails or panics. Both
    /// name the key and the operator.
    pub fn fold(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>> {
        debug_assert!(!operands.is_empty(), "nothing to fold for {key:?}");
        let Some(operator) = &self.operator else { return Err(self.not_given(key)) };
        let folded = guarded(|| operator.merge(key, base, operands));
        let detail = match folded {
            Ok(Ok(value)) if value.len() <= shamba_key::MAX_VALUE_BYTES => return Ok(value),
            Ok(Ok(value)) => format!("it returned {} bytes, which is too long for a value", value.len()),
            Ok(Err(detail)) => detail,
            Err(panic) => format!("it panicked: {}", panic_text(panic.as_ref())),
        };
        Err(Error::invalid(format!(
            "the merge operator {:?} failed for key \"{}\": {detail}",
            self.name,
            key.escape_ascii()
        )))
    }

    /// The single operand to which the operands, oldest first, combine. `None` if the operator does
    /// not combine them, fails, panics, or makes an operand of more than
    /// [`shamba_key::MAX_OPERAND_BYTES`]: then they stay apart.
    pub fn combine(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let operator = self.operator.as_ref()?;
        let combined = guarded(|| operator.combine(key, operands)).ok()?.ok()??;
        (combined.len() <= shamba_key::MAX_OPERAND_BYTES).then_some(combined)
    }

    fn not_given(&self, key: &[u8]) -> Error {
        Error::unknown_entry(format!(
            "key \"{}\" has operands of the merge operator {:?}, which this open was not given",
            key.escape_ascii(),
            self.name
        ))
    }
}

/// The error of a key with operands in a keyspace that records no operator.
pub(crate) fn no_operator(key: &[u8]) -> Error {
    Error::unknown_entry(format!(
        "key \"{}\" has operands of a merge operator, and its keyspace records none",
        key.escape_ascii()
    ))
}

/// Calls a user's code, and makes the text of its error, which is the user's code too.
fn guarded<T>(call: impl FnOnce() -> MergeResult<T>) -> std::thread::Result<Result<T, String>> {
    catch_unwind(AssertUnwindSafe(|| call().map_err(|error| error.to_string())))
}

/// The text of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a text")
}

#[cfg(test)]
mod tests;
