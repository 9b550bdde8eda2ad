//! Operations as text, for failure reports.

use std::fmt;
use std::ops::Bound;

use super::{Op, TransactionOp};
use crate::oracle::{Change, Span};

/// Bytes as escaped text, with long ones abbreviated, for failure reports.
pub fn shown(bytes: &[u8]) -> String {
    match bytes.get(..32) {
        Some(start) => format!("\"{}\"..{}B", start.escape_ascii(), bytes.len()),
        None => format!("\"{}\"", bytes.escape_ascii()),
    }
}

/// A span as text.
pub fn shown_span(span: &Span) -> String {
    let low = match &span.0 {
        Bound::Included(key) => format!("[{}", shown(key)),
        Bound::Excluded(key) => format!("({}", shown(key)),
        Bound::Unbounded => "(-inf".to_owned(),
    };
    let high = match &span.1 {
        Bound::Included(key) => format!("{}]", shown(key)),
        Bound::Excluded(key) => format!("{})", shown(key)),
        Bound::Unbounded => "+inf)".to_owned(),
    };
    format!("{low}, {high}")
}

fn shown_change(change: &Change) -> String {
    match change {
        Change::Put { space, key, value } => format!("put {space}:{} = {}", shown(key), shown(value)),
        Change::Delete { space, key } => format!("delete {space}:{}", shown(key)),
        Change::Merge { space, key, operand } => format!("merge {space}:{} , {}", shown(key), shown(operand)),
        Change::DeleteRange { space, span } => format!("delete_range {space}:{}", shown_span(span)),
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(change) => f.write_str(&shown_change(change)),
            Self::Batch { changes, sync } => {
                let list = changes.iter().map(shown_change).collect::<Vec<_>>().join("; ");
                write!(f, "batch sync={sync} {{ {list} }}")
            }
            Self::Replace { space, key, new, is_update } => {
                let new = new.as_deref().map_or_else(|| "nothing".to_owned(), shown);
                write!(f, "replace {space}:{} by {new} is_update={is_update}", shown(key))
            }
            Self::Transaction(op) => {
                let TransactionOp { gets, scan: (space, span, reverse), changes, outside, .. } = &**op;
                let gets = gets.iter().map(|(space, key)| format!("get {space}:{}; ", shown(key)));
                let changes = changes.iter().map(shown_change).collect::<Vec<_>>().join("; ");
                write!(
                    f,
                    "transaction is_snapshot={} sync={} {{ {}scan {space}:{} reverse={reverse} | {}; {:?} | {changes} }}",
                    op.is_snapshot,
                    op.sync,
                    gets.collect::<String>(),
                    shown_span(span),
                    outside.as_ref().map(shown_change).unwrap_or_default(),
                    Self::Pass { ticks: op.ticks },
                )
            }
            Self::Pass { ticks } => write!(f, "pass {ticks} ticks"),
            Self::Live { space, key, ticks: Some(ticks) } => {
                write!(f, "live {space}:{} for {ticks} ticks", shown(key))
            }
            Self::Live { space, key, ticks: None } => write!(f, "live {space}:{} for ever", shown(key)),
            Self::Get { space, key } => write!(f, "get {space}:{}", shown(key)),
            Self::MultiGet { space, keys } => {
                let list = keys.iter().map(|key| shown(key)).collect::<Vec<_>>().join(" ");
                write!(f, "multi_get {space}:{list}")
            }
            Self::Scan { space, span, reverse } => {
                write!(f, "scan {space}:{} reverse={reverse}", shown_span(span))
            }
            Self::BothEnds { space, span, pattern } => {
                write!(f, "both_ends {space}:{} pattern={pattern:#x}", shown_span(span))
            }
            Self::Prefix { space, prefix, reverse } => {
                write!(f, "prefix {space}:{} reverse={reverse}", shown(prefix))
            }
            Self::Walk { space, moves } => write!(f, "walk {space}:{moves:?}"),
            Self::SnapshotTake => f.write_str("snapshot"),
            Self::SnapshotRead { slot, space, key, span } => {
                write!(f, "snapshot_read {slot} {space}:{} {}", shown(key), shown_span(span))
            }
            Self::SnapshotDrop { slot } => write!(f, "snapshot_drop {slot}"),
            Self::Redesign(target) => write!(f, "{target:?}"),
            Self::IterOpen { space, span } => write!(f, "iter_open {space}:{}", shown_span(span)),
            Self::IterStep { slot, back, steps } => write!(f, "iter_step {slot} back={back} x{steps}"),
            Self::Flush => f.write_str("flush"),
            Self::Compact => f.write_str("compact"),
            Self::CompactRange { space, span } => write!(f, "compact_range {space}:{}", shown_span(span)),
            Self::Sync => f.write_str("sync"),
            Self::WaitIdle => f.write_str("wait_idle"),
            Self::Reopen { clean, change_options } => {
                write!(f, "reopen clean={clean} change_options={change_options}")
            }
            Self::Checkpoint => f.write_str("checkpoint"),
            Self::Ingest(pairs) => {
                let keys = pairs.iter().map(|(key, _)| shown(key)).collect::<Vec<_>>().join(" ");
                write!(f, "ingest {keys}")
            }
            Self::DropSpace { space } => write!(f, "drop_space {space}"),
            Self::Verify => f.write_str("verify"),
            Self::Explain(key) => write!(f, "explain {}", shown(key)),
        }
    }
}
