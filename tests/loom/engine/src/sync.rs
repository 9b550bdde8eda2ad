//! The engine's `sync` module with loom's locks and atomics, and with the mutations.

pub use loom::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult};
pub use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};
pub use std::thread_local;

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::broken::{Broken, is_broken};

/// Every schedule is explored.
pub const IS_EXPLORED: bool = true;

/// A lock.
///
/// loom does not treat the release of a lock as a step: it never switches threads between the last
/// step under a lock and its release. A thread that *tries* a lock would find it free too often.
/// Here the release is a step, through a counter that the release and each try change.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    mutex: loom::sync::Mutex<T>,
    ends: loom::sync::atomic::AtomicUsize,
}

/// A held lock.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    /// `None` only while it is dropped or waits.
    guard: Option<loom::sync::MutexGuard<'a, T>>,
    mutex: &'a Mutex<T>,
}

#[allow(missing_docs)]
impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self { mutex: loom::sync::Mutex::new(value), ends: loom::sync::atomic::AtomicUsize::new(0) }
    }

    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.guarded(self.mutex.lock())
    }

    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        self.step();
        match self.mutex.try_lock() {
            Ok(guard) => Ok(MutexGuard { guard: Some(guard), mutex: self }),
            // loom's locks are never poisoned: a panic ends the model.
            Err(_) => Err(TryLockError::WouldBlock),
        }
    }

    fn guarded<'a>(
        &'a self,
        locked: LockResult<loom::sync::MutexGuard<'a, T>>,
    ) -> LockResult<MutexGuard<'a, T>> {
        match locked {
            Ok(guard) => Ok(MutexGuard { guard: Some(guard), mutex: self }),
            Err(poison) => {
                Err(PoisonError::new(MutexGuard { guard: Some(poison.into_inner()), mutex: self }))
            }
        }
    }

    fn step(&self) {
        self.ends.fetch_add(1, atomic::Ordering::Relaxed);
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if self.guard.is_some() && !std::thread::panicking() {
            self.mutex.step();
        }
    }
}

const HELD: &str = "a guard holds its lock until it is dropped";

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect(HELD)
    }
}

/// A condition variable. A wait with a time limit has no limit here: a thread continues only if it
/// is woken.
#[derive(Debug, Default)]
pub struct Condvar(loom::sync::Condvar);

#[allow(missing_docs)]
impl Condvar {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let mutex = guard.mutex;
        mutex.step();
        mutex.guarded(self.0.wait(guard.guard.take().expect(HELD)))
    }

    pub fn wait_timeout<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let mutex = guard.mutex;
        mutex.step();
        match self.0.wait_timeout(guard.guard.take().expect(HELD), limit) {
            Ok((guard, result)) => Ok((MutexGuard { guard: Some(guard), mutex }, result)),
            Err(poison) => {
                let (guard, result) = poison.into_inner();
                Err(PoisonError::new((MutexGuard { guard: Some(guard), mutex }, result)))
            }
        }
    }

    pub fn notify_one(&self) {
        if !is_broken(Broken::Wakeups) {
            self.0.notify_one();
        }
    }

    pub fn notify_all(&self) {
        if !is_broken(Broken::Wakeups) {
            self.0.notify_all();
        }
    }
}

/// Atomics.
///
/// loom has no total order of sequentially consistent accesses. Here each such access that writes
/// is followed by a fence, which has a total order. So if two threads each write one of these and
/// then read the other's, at least one sees the other's write, as without the fence.
#[allow(missing_docs)]
pub mod atomic {
    pub use std::sync::atomic::Ordering;

    use loom::sync::atomic::fence;

    use crate::broken::{Broken, is_broken};

    fn reading(order: Ordering) -> Ordering {
        match order {
            _ if is_broken(Broken::Orderings) => Ordering::Relaxed,
            Ordering::SeqCst => Ordering::Acquire,
            order => order,
        }
    }

    fn writing(order: Ordering) -> Ordering {
        match order {
            _ if is_broken(Broken::Orderings) => Ordering::Relaxed,
            Ordering::SeqCst => Ordering::Release,
            order => order,
        }
    }

    fn both(order: Ordering) -> Ordering {
        match order {
            _ if is_broken(Broken::Orderings) => Ordering::Relaxed,
            Ordering::SeqCst => Ordering::AcqRel,
            order => order,
        }
    }

    fn written(order: Ordering) {
        if order == Ordering::SeqCst && !is_broken(Broken::Consistency) && !is_broken(Broken::Orderings) {
            fence(Ordering::SeqCst);
        }
    }

    macro_rules! atomic {
        ($name:ident, $value:ty $(, $change:ident)*) => {
            #[derive(Debug)]
            pub struct $name(loom::sync::atomic::$name);

            impl $name {
                pub fn new(value: $value) -> Self {
                    Self(loom::sync::atomic::$name::new(value))
                }

                pub fn load(&self, order: Ordering) -> $value {
                    self.0.load(reading(order))
                }

                pub fn store(&self, value: $value, order: Ordering) {
                    self.0.store(value, writing(order));
                    written(order);
                }

                pub fn swap(&self, value: $value, order: Ordering) -> $value {
                    if is_broken(Broken::Steps) {
                        let before = self.0.load(Ordering::Acquire);
                        self.0.store(value, Ordering::Release);
                        return before;
                    }
                    let before = self.0.swap(value, both(order));
                    written(order);
                    before
                }

                $(pub fn $change(&self, value: $value, order: Ordering) -> $value {
                    if is_broken(Broken::Steps) {
                        let before = self.0.load(Ordering::Acquire);
                        self.0.store(changed::$change(before.into(), value.into()) as $value, Ordering::Release);
                        return before;
                    }
                    let before = self.0.$change(value, both(order));
                    written(order);
                    before
                })*
            }

            impl Default for $name {
                fn default() -> Self {
                    Self::new(<$value>::default())
                }
            }
        };
    }

    /// The results of the read-modify-write steps for two numbers.
    mod changed {
        pub(super) fn fetch_add(before: u128, value: u128) -> u128 {
            before + value
        }

        pub(super) fn fetch_sub(before: u128, value: u128) -> u128 {
            before.wrapping_sub(value)
        }

        pub(super) fn fetch_or(before: u128, value: u128) -> u128 {
            before | value
        }

        pub(super) fn fetch_max(before: u128, value: u128) -> u128 {
            before.max(value)
        }
    }

    atomic!(AtomicU32, u32, fetch_add, fetch_sub, fetch_or, fetch_max);
    atomic!(AtomicU64, u64, fetch_add, fetch_sub, fetch_or, fetch_max);
    atomic!(AtomicBool, bool);

    /// As in the standard library, which has no `From` from it to a wide enough number.
    #[derive(Debug)]
    pub struct AtomicUsize(AtomicU64);

    impl AtomicUsize {
        pub fn new(value: usize) -> Self {
            Self(AtomicU64::new(value as u64))
        }

        pub fn load(&self, order: Ordering) -> usize {
            self.0.load(order) as usize
        }

        pub fn store(&self, value: usize, order: Ordering) {
            self.0.store(value as u64, order);
        }

        pub fn fetch_add(&self, value: usize, order: Ordering) -> usize {
            self.0.fetch_add(value as u64, order) as usize
        }

        pub fn fetch_sub(&self, value: usize, order: Ordering) -> usize {
            self.0.fetch_sub(value as u64, order) as usize
        }
    }

    #[derive(Debug)]
    pub struct AtomicPtr<T>(loom::sync::atomic::AtomicPtr<T>);

    impl<T> AtomicPtr<T> {
        pub fn new(value: *mut T) -> Self {
            Self(loom::sync::atomic::AtomicPtr::new(value))
        }

        pub fn load(&self, order: Ordering) -> *mut T {
            self.0.load(reading(order))
        }

        pub fn store(&self, value: *mut T, order: Ordering) {
            self.0.store(value, writing(order));
            written(order);
        }

        pub fn swap(&self, value: *mut T, order: Ordering) -> *mut T {
            let before = self.0.swap(value, both(order));
            written(order);
            before
        }
    }

    impl<T> Default for AtomicPtr<T> {
        fn default() -> Self {
            Self::new(std::ptr::null_mut())
        }
    }
}
