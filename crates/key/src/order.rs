//! Internal order: user key ascending, then sequence number descending, so that the newest version
//! of a key comes first.

use std::cmp::Ordering;

use crate::SeqNo;

/// Compares two positions in internal order.
#[inline]
pub fn internal_cmp(a_key: &[u8], a_seq: SeqNo, b_key: &[u8], b_seq: SeqNo) -> Ordering {
    a_key.cmp(b_key).then(b_seq.cmp(&a_seq))
}
