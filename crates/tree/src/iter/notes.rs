//! Notes of a scan on its parts, for an observer that records the workload.

use std::sync::Arc;

/// One part of a scan: a walk in one direction from one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanPart {
    /// Whether the scan moved towards larger keys.
    pub is_forward: bool,
    /// Key that the part started from.
    pub from: Vec<u8>,
    /// Entries read.
    pub entries: u64,
}

/// Receives the parts of a scan when they end.
pub trait ScanObserver: Send + Sync {
    /// A part has ended.
    fn part(&self, part: ScanPart);
}

/// The part that a scan is in. Reports it when the scan moves elsewhere or is dropped.
pub(crate) struct ScanNote {
    observer: Arc<dyn ScanObserver>,
    part: Option<ScanPart>,
}

impl ScanNote {
    pub fn new(observer: &Arc<dyn ScanObserver>) -> Self {
        Self { observer: Arc::clone(observer), part: None }
    }

    /// Adds entries that the scan read in its present direction.
    pub fn read(&mut self, entries: u64) {
        if let Some(part) = &mut self.part {
            part.entries += entries;
        }
    }

    /// Whether the present part goes in this direction.
    pub fn goes(&self, is_forward: bool) -> bool {
        self.part.as_ref().is_some_and(|part| part.is_forward == is_forward)
    }

    /// Starts a part at `from`; the present one ends.
    pub fn begin(&mut self, is_forward: bool, from: Vec<u8>) {
        self.end();
        self.part = Some(ScanPart { is_forward, from, entries: 0 });
    }

    /// Corrects the key at which the present part started.
    pub fn begins_at(&mut self, key: &[u8]) {
        if let Some(part) = &mut self.part {
            part.from = key.to_vec();
        }
    }

    fn end(&mut self) {
        if let Some(part) = self.part.take() {
            self.observer.part(part);
        }
    }
}

impl Drop for ScanNote {
    fn drop(&mut self) {
        self.end();
    }
}
