//! Cache of false-positive rate curves.
//!
//! One curve is some hundred sums of theory, more than the rest of an allocation, and an allocation
//! is made for every table that is built.
//!
//! A curve depends only on the layout and its upper end and never changes, so all databases of a
//! process share the cache. Few curves are in use at a time; the oldest one is removed when there
//! are more.
//!
//! Not here: the curves themselves ([`shamba_model::allocation::Measured`]).

use std::sync::Arc;

use shamba_filter::{FilterLayout, measured};
use shamba_model::allocation::Measured;

/// Maximum number of cached curves: a database uses one, tests use a few at the same time.
const CURVES_MAX: usize = 32;

/// Key of a curve: the layout, and the bit pattern of its upper end in bits per key.
type Name = (FilterLayout, u64);

/// A lock of the standard library, not of `crate::sync`: it is global to the process, and explored
/// schedules cover one database. It is held for moments only.
static CURVES: std::sync::Mutex<Vec<(Name, Arc<Measured>)>> = std::sync::Mutex::new(Vec::new());

fn curves() -> std::sync::MutexGuard<'static, Vec<(Name, Arc<Measured>)>> {
    CURVES.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The measured rates of `layout` up to `largest_bits_per_key`.
///
/// # Errors
/// An invalid upper end.
pub(super) fn curve(layout: FilterLayout, largest_bits_per_key: f64) -> Result<Arc<Measured>, String> {
    let name = (layout, largest_bits_per_key.to_bits());
    if let Some((_, known)) = curves().iter().find(|(known, _)| *known == name) {
        return Ok(Arc::clone(known));
    }
    // Computed without the lock: two threads that compute the same curve at the same time do no
    // harm.
    let made = Measured::from_fn(|bits| measured::fpr(layout, bits), largest_bits_per_key)?;
    let made = Arc::new(made);
    let mut curves = curves();
    if curves.len() >= CURVES_MAX {
        curves.remove(0);
    }
    curves.push((name, Arc::clone(&made)));
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_made_once_and_is_that_of_its_layout() {
        let modular = FilterLayout::Modular(shamba_filter::Modules::equal(3).expect("modules"));
        for layout in [FilterLayout::Blocked, modular] {
            let first = curve(layout, 24.0).expect("a curve");
            assert!(Arc::ptr_eq(&first, &curve(layout, 24.0).expect("the same")));
            let made = Measured::from_fn(|bits| measured::fpr(layout, bits), 24.0).expect("a curve");
            assert_eq!(*first, made);
            assert!(!Arc::ptr_eq(&first, &curve(layout, 25.0).expect("another")));
        }
        assert!(curve(FilterLayout::Blocked, f64::NAN).is_err());
        (0..2 * CURVES_MAX).for_each(|end| _ = curve(FilterLayout::Blocked, 1.0 + end as f64));
        assert!(curves().len() <= CURVES_MAX + 8, "those made at once may pass it");
    }
}
