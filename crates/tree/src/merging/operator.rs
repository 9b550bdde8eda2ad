//! The traits that users implement: a merge operator, and its simpler form for associative ones.

/// What an operator returns. Any error type converts into it with `?`, and a text with `into`.
pub type MergeResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Makes the value of a key from operands that were written without reading it.
///
/// The name is recorded with the keyspace. It must change when the operator's results do.
///
/// An operator is called by readers, flushes and compactions, from any thread and any number of
/// times for the same operands. So it must depend on nothing but its arguments, and take little
/// time. An error or a panic fails the read of that key, and keeps its operands apart; nothing is
/// lost.
///
/// A function of two values is simpler to write as [`AssociativeMerge`].
pub trait MergeOperator: Send + Sync {
    /// The name under which the keyspace records the operator.
    fn name(&self) -> &str;

    /// Checks an operand before it is written: a wrong one would fail every later read of its key.
    ///
    /// # Errors
    /// Any: the write is refused with it.
    fn check(&self, key: &[u8], operand: &[u8]) -> MergeResult<()> {
        let _ = (key, operand);
        Ok(())
    }

    /// The new value of `key`: `operands`, oldest first, applied to `base`; `None` stands for no
    /// value.
    ///
    /// # Errors
    /// Any: the read of the key fails with it.
    fn merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> MergeResult<Vec<u8>>;

    /// One operand in place of several, oldest first: applied to any value it must have the effect
    /// of all of them in turn. `None` if there is no such operand; they are kept then.
    ///
    /// # Errors
    /// Any: the operands are kept.
    fn combine(&self, key: &[u8], operands: &[&[u8]]) -> MergeResult<Option<Vec<u8>>> {
        let _ = (key, operands);
        Ok(None)
    }
}

/// A merge operator whose operands and values are of one kind, such as numbers to add.
///
/// `merge` must be associative: it does not matter which neighbours are merged first. The first
/// operand of a key without a value becomes the value.
pub trait AssociativeMerge: Send + Sync {
    /// The name under which the keyspace records the operator.
    fn name(&self) -> &str;

    /// As [`MergeOperator::check`].
    ///
    /// # Errors
    /// Any: the write is refused with it.
    fn check(&self, key: &[u8], operand: &[u8]) -> MergeResult<()> {
        let _ = (key, operand);
        Ok(())
    }

    /// The older and the newer value or operand as one.
    ///
    /// # Errors
    /// Any: the read of the key fails with it.
    fn merge(&self, key: &[u8], older: &[u8], newer: &[u8]) -> MergeResult<Vec<u8>>;
}

impl<T: AssociativeMerge> MergeOperator for T {
    fn name(&self) -> &str {
        AssociativeMerge::name(self)
    }

    fn check(&self, key: &[u8], operand: &[u8]) -> MergeResult<()> {
        AssociativeMerge::check(self, key, operand)
    }

    fn merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> MergeResult<Vec<u8>> {
        let mut all = base.into_iter().chain(operands.iter().copied());
        let first = all.next().unwrap_or_default().to_vec();
        all.try_fold(first, |older, newer| AssociativeMerge::merge(self, key, &older, newer))
    }

    fn combine(&self, key: &[u8], operands: &[&[u8]]) -> MergeResult<Option<Vec<u8>>> {
        MergeOperator::merge(self, key, None, operands).map(Some)
    }
}
