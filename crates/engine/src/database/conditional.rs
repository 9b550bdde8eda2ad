//! Writes that depend on the value that they replace: compare-and-swap, put-if-absent, update, and
//! another time to live.
//!
//! Each attempt reads the key and commits under the condition that it is unchanged
//! ([`crate::writer::conditions`]). After a conflict it begins again. An attempt fails only if
//! another batch wrote the key, or a table that may hold it was installed meanwhile. So it ends if
//! the key is not written all the time, and if an attempt takes less time than passes from flush to
//! flush.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shamba_key::Expiry;
use shamba_log::wal::OpRef;
use shamba_tree::slice::Slice;

use crate::error::{Error, ErrorKind, Result};
use crate::reads::options::HashedKey;
use crate::reads::reader::ReadAt;
use crate::writer::conditions::{Conditions, KeyRead};
use crate::writer::operations::with_put;
use crate::writer::{WriteOptions, Writer};

/// Outcome of a compare-and-swap.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "a swap may not have happened"]
pub enum Swap {
    /// The key had the expected value and has the new one.
    Done,
    /// The key has this value, or none, and was not changed.
    Mismatch(Option<Slice>),
}

impl Swap {
    /// Whether the key has the new value.
    pub fn is_done(&self) -> bool {
        *self == Self::Done
    }
}

/// The change to make to a key.
enum Change<V> {
    /// Set it to the value, or remove it.
    To(Option<V>),
    Nothing,
}

/// Sets `key` to `new` (`None`: removes it) if it has the value `expected` (`None`: no value).
///
/// # Errors
/// Of reading and of writing.
pub(crate) fn compare_and_swap(
    at: &ReadAt<'_>,
    writer: &Writer,
    key: &[u8],
    (expected, new): (Option<&[u8]>, Option<&[u8]>),
    options: WriteOptions,
) -> Result<Swap> {
    let mut swap = Swap::Done;
    change(at, writer, key, options, |current| {
        if current.as_deref() == expected {
            swap = Swap::Done;
            return Change::To(new);
        }
        swap = Swap::Mismatch(current);
        Change::Nothing
    })?;
    Ok(swap)
}

/// Sets `key` to what `change` makes of its value; `None` removes it.
///
/// # Errors
/// Of reading and of writing.
pub(crate) fn update<V: AsRef<[u8]>>(
    at: &ReadAt<'_>,
    writer: &Writer,
    key: &[u8],
    mut make: impl FnMut(Option<&[u8]>) -> Option<V>,
    options: WriteOptions,
) -> Result<()> {
    change(at, writer, key, options, |current| match (make(current.as_deref()), current) {
        (None, None) => Change::Nothing,
        (new, _) => Change::To(new),
    })
}

/// Writes the value of `key` again, if it has one, so that it lives for `time_to_live`. Returns
/// whether it has one.
///
/// # Errors
/// Of reading and of writing; `Invalid` if `options` have a time to live.
pub(crate) fn renew(
    at: &ReadAt<'_>,
    writer: &Writer,
    key: &[u8],
    time_to_live: Duration,
    options: WriteOptions,
) -> Result<bool> {
    if options.time_to_live.is_some() {
        return Err(Error::invalid("the time to live is given twice: set_time_to_live takes it by itself"));
    }
    let options = options.time_to_live(time_to_live);
    let mut has_value = false;
    let keep = |current: Option<Slice>| {
        has_value = current.is_some();
        if has_value { Change::To(current) } else { Change::Nothing }
    };
    change_read_by(at, writer, key, options, |key| at.get_until(key), keep)?;
    Ok(has_value)
}

/// Reads `key` and does what `decide` says, until nothing has changed it in between.
fn change<V: AsRef<[u8]>>(
    at: &ReadAt<'_>,
    writer: &Writer,
    key: &[u8],
    options: WriteOptions,
    decide: impl FnMut(Option<Slice>) -> Change<V>,
) -> Result<()> {
    change_read_by(at, writer, key, options, |key| Ok((at.get_hashed(key)?, None)), decide)
}

/// [`change`] that reads the key by `read`, which returns its value and the time that the change
/// must come before.
fn change_read_by<V: AsRef<[u8]>>(
    at: &ReadAt<'_>,
    writer: &Writer,
    key: &[u8],
    options: WriteOptions,
    read: impl Fn(&HashedKey) -> Result<(Option<Slice>, Option<Expiry>)>,
    mut decide: impl FnMut(Option<Slice>) -> Change<V>,
) -> Result<()> {
    let made_by = at.reads.digest();
    let key = HashedKey { key: key.to_vec(), digest: made_by.digest(key), made_by };
    loop {
        // Held until the commit, so that what happened to the key is not compacted away.
        let before = at.reads.snapshot();
        // A newer value may be read. The condition is the stricter one then.
        let (current, until) = read(&key)?;
        let Change::To(new) = decide(current) else { return Ok(()) };
        let read =
            KeyRead { keyspace: at.keyspace.id, digest: key.digest, key: Bytes::copy_from_slice(&key.key) };
        let conditions =
            Arc::new(Conditions { since: before.seq(), until, keys: vec![read], ranges: Vec::new() });
        let commit = |op: OpRef<'_>| writer.commit_op_if(at.keyspace, op, options, Some(&conditions));
        let committed = match &new {
            Some(value) => {
                let expiry = writer.expiry(at.keyspace, options.time_to_live)?;
                with_put(&key.key, value.as_ref(), expiry, commit)
            }
            None => commit(OpRef::Delete { key: &key.key }),
        };
        match committed {
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            outcome => return outcome,
        }
    }
}
