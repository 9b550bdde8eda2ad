//! A replacement for `arc-swap`: a cell that is loaded and stored in one step, with a lock.
//!
//! A load counts the reference, as `load_full` does there; only the cost differs.

use std::sync::Arc;

use crate::sync::{Mutex, PoisonError};

/// The result of a load.
pub(crate) type Guard<T> = T;

pub(crate) struct ArcSwap<T>(Mutex<Arc<T>>);

impl<T> ArcSwap<T> {
    pub(crate) fn from_pointee(value: T) -> Self {
        Self(Mutex::new(Arc::new(value)))
    }

    pub(crate) fn load(&self) -> Arc<T> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn load_full(&self) -> Arc<T> {
        self.load()
    }

    pub(crate) fn store(&self, value: Arc<T>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }
}
