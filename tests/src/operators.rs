//! The merge operators of the suites. Both append an operand after a comma, so the order and the
//! number of operands show in the value.
//!
//! One is built in and combines operands, so flushes and compactions write combined ones. The other
//! belongs to a user and never combines, so they keep operands apart until a base is known.

use shamba::KeyspaceOptions;
use shamba::merge::{Append, MergeOperator, MergeResult};

/// The bytes between a value and an operand.
pub const SEPARATOR: &[u8] = b",";

/// Appends after a comma, and never combines operands.
#[derive(Clone, Copy, Debug)]
pub struct Apart;

impl Apart {
    /// The name that keyspaces record.
    pub const NAME: &str = "suites.apart";
}

impl MergeOperator for Apart {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> MergeResult<Vec<u8>> {
        let parts: Vec<&[u8]> = base.into_iter().chain(operands.iter().copied()).collect();
        Ok(parts.join(SEPARATOR))
    }
}

/// The options of a keyspace with one of the two operators.
pub fn appending(combines: bool) -> KeyspaceOptions {
    match combines {
        true => KeyspaceOptions::new().merge_operator(Append::separated_by(SEPARATOR)),
        false => KeyspaceOptions::new().merge_operator(Apart),
    }
}

/// The value of a key after a merge: the result that a model expects of either operator.
pub fn appended(value: Option<&[u8]>, operand: &[u8]) -> Vec<u8> {
    value.map_or_else(|| operand.to_vec(), |value| [value, operand].join(SEPARATOR))
}
