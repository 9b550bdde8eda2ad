//! The write methods of handles that write to one keyspace, as a macro.

/// The write methods of handles that write to one keyspace.
macro_rules! write_methods {
    () => {
        /// Sets `key` to `value`.
        ///
        /// # Errors
        /// - `Invalid` for a key over 65,535 bytes or a value over 256 MiB.
        /// - `NoSpace`, `Io`: the log could not be written, and the write is not visible.
        /// - `ReadOnly` after such a failure.
        /// - `Closed` after `close`.
        /// - The error of a flush or compaction that the write waits for and that fails three times
        ///   in a row. The write is not done then. Later writes succeed once that work does.
        pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
            self.put_with(key, value, WriteOptions::new())
        }

        /// `put` with a durability and a deadline of its own: a [`Durability`](crate::Durability)
        /// or [`WriteOptions`].
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// use shamba::{Durability, WriteOptions};
        ///
        /// // On stable storage when it returns, with every earlier write.
        /// db.put_with("order:7", "paid", Durability::Sync)?;
        /// // Fails with `Stalled` instead of waiting longer than 50 ms.
        /// db.put_with("visit:9", "user:2", WriteOptions::new().deadline_ms(50))?;
        /// // In a minute as if it had been deleted.
        /// let minute = std::time::Duration::from_secs(60);
        /// db.put_with("session:3", "user:2", WriteOptions::new().time_to_live(minute))?;
        /// # Ok::<(), shamba::Error>(())
        /// ```
        ///
        /// # Errors
        /// As `put`; `Stalled` when the deadline passed while the write waited for flushes or
        /// compactions.
        pub fn put_with(
            &self,
            key: impl AsRef<[u8]>,
            value: impl AsRef<[u8]>,
            options: impl Into<WriteOptions>,
        ) -> Result<()> {
            self.database().writer.put(&self.keyspace, key.as_ref(), value.as_ref(), options.into())
        }

        /// Removes `key`. Succeeds if it has no value.
        ///
        /// # Errors
        /// As `put`.
        pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
            self.delete_with(key, WriteOptions::new())
        }

        /// `delete` with a durability and a deadline of its own.
        ///
        /// # Errors
        /// As `put_with`.
        pub fn delete_with(&self, key: impl AsRef<[u8]>, options: impl Into<WriteOptions>) -> Result<()> {
            let options = options.into().without_time_to_live("a delete")?;
            self.database().writer.commit_op(&self.keyspace, OpRef::Delete { key: key.as_ref() }, options)
        }

        /// Removes every key of a range, with a single small entry. An empty or reversed range
        /// removes nothing.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// for key in ["log:1", "log:2", "user:1"] {
        ///     db.put(key, "")?;
        /// }
        /// db.delete_range("log:".."log;")?;
        /// assert_eq!(db.iter().count(), 1);
        /// # Ok::<(), shamba::Error>(())
        /// ```
        ///
        /// # Errors
        /// As `put`.
        pub fn delete_range(&self, range: impl KeyRange) -> Result<()> {
            self.delete_range_with(range, WriteOptions::new())
        }

        /// `delete_range` with a durability and a deadline of its own.
        ///
        /// # Errors
        /// As `put_with`.
        pub fn delete_range_with(
            &self,
            range: impl KeyRange,
            options: impl Into<WriteOptions>,
        ) -> Result<()> {
            let options = options.into().without_time_to_live("a range delete")?;
            self.keyspace.check_usable()?;
            let mut operations = Operations::EMPTY;
            with_range_delete(&range, |op| operations.push(self.keyspace.id, op))?;
            self.database().writer.commit(&mut operations, options).map(drop)
        }

        /// Removes every key that begins with `prefix`, with a single small entry. An empty prefix
        /// is that of all keys.
        ///
        /// # Errors
        /// As `put`.
        pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<()> {
            self.delete_prefix_with(prefix, WriteOptions::new())
        }

        /// `delete_prefix` with a durability and a deadline of its own.
        ///
        /// # Errors
        /// As `put_with`.
        pub fn delete_prefix_with(
            &self,
            prefix: impl AsRef<[u8]>,
            options: impl Into<WriteOptions>,
        ) -> Result<()> {
            self.delete_range_with(PrefixRange::of(prefix.as_ref()), options)
        }

        /// Adds an operand to `key`, from which the keyspace's merge operator makes its value.
        /// Reads nothing, so it costs as little as `put`; many threads may merge the same key.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let path = dir.path().join("db");
        /// use shamba::{Db, KeyspaceOptions, merge::AddU64};
        ///
        /// let counting = KeyspaceOptions::new().merge_operator(AddU64);
        /// let db = Db::builder(path).keyspace("default", counting).open()?;
        /// db.merge("visits", 2u64.to_le_bytes())?;
        /// db.merge("visits", 3u64.to_le_bytes())?;
        /// assert_eq!(db.get("visits")?.as_deref(), Some(&5u64.to_le_bytes()[..]));
        /// # Ok::<(), shamba::Error>(())
        /// ```
        ///
        /// # Errors
        /// As `put`; `Invalid` if the keyspace has no merge operator, for an operand that it
        /// refuses and for one over 65,535 bytes.
        pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
            self.merge_with(key, operand, WriteOptions::new())
        }

        /// `merge` with a durability and a deadline of its own.
        ///
        /// # Errors
        /// As `merge` and `put_with`.
        pub fn merge_with(
            &self,
            key: impl AsRef<[u8]>,
            operand: impl AsRef<[u8]>,
            options: impl Into<WriteOptions>,
        ) -> Result<()> {
            let options = options.into().without_time_to_live("an operand")?;
            self.keyspace.check_usable()?;
            let operand = self.keyspace.operand(key.as_ref(), operand.as_ref())?;
            let op = OpRef::Merge { key: key.as_ref(), operand: &operand };
            self.database().writer.commit_op(&self.keyspace, op, options)
        }

        /// Sets `key` to `new` if it has the value `expected`, in one step: no other write comes in
        /// between. `None` stands for no value, in both places.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// use shamba::Swap;
        ///
        /// db.put("door", "open")?;
        /// assert!(db.compare_and_swap("door", Some(b"open"), Some(b"shut"))?.is_done());
        /// let Swap::Mismatch(current) = db.compare_and_swap("door", Some(b"open"), None)? else {
        ///     panic!("it was shut");
        /// };
        /// assert_eq!(current.as_deref(), Some(&b"shut"[..]));
        /// # Ok::<(), shamba::Error>(())
        /// ```
        ///
        /// # Errors
        /// As `get` and `put`. Another value than the expected one is no error.
        pub fn compare_and_swap(
            &self,
            key: impl AsRef<[u8]>,
            expected: Option<&[u8]>,
            new: Option<&[u8]>,
        ) -> Result<Swap> {
            self.compare_and_swap_with(key, expected, new, WriteOptions::new())
        }

        /// `compare_and_swap` with a durability and a deadline of its own. The deadline is that of
        /// one attempt; a further one follows only if another write has changed the key.
        ///
        /// # Errors
        /// As `get` and `put_with`.
        pub fn compare_and_swap_with(
            &self,
            key: impl AsRef<[u8]>,
            expected: Option<&[u8]>,
            new: Option<&[u8]>,
            options: impl Into<WriteOptions>,
        ) -> Result<Swap> {
            let (at, writer) = (self.read_at(), &self.database().writer);
            conditional::compare_and_swap(&at, writer, key.as_ref(), (expected, new), options.into())
        }

        /// Sets `key` to `value` if it has none, in one step. Returns the value that it has
        /// otherwise, as a mismatch.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// assert!(db.put_if_absent("name:asha", "user:1")?.is_done());
        /// assert!(!db.put_if_absent("name:asha", "user:2")?.is_done());
        /// # Ok::<(), shamba::Error>(())
        /// ```
        ///
        /// # Errors
        /// As `compare_and_swap`.
        pub fn put_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Swap> {
            self.put_if_absent_with(key, value, WriteOptions::new())
        }

        /// `put_if_absent` with a durability and a deadline of its own.
        ///
        /// # Errors
        /// As `compare_and_swap_with`.
        pub fn put_if_absent_with(
            &self,
            key: impl AsRef<[u8]>,
            value: impl AsRef<[u8]>,
            options: impl Into<WriteOptions>,
        ) -> Result<Swap> {
            self.compare_and_swap_with(key, None, Some(value.as_ref()), options)
        }

        /// Sets `key` to what `change` makes of its value, in one step; `None` stands for no value,
        /// before and after. `change` may be called several times, when other writes change the key
        /// meanwhile. The last call counts. It should take little time, and must not write the key
        /// itself: that would be such a change each time.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// let add_one = |old: Option<&[u8]>| {
        ///     let old = old.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
        ///     Some((old + 1).to_le_bytes())
        /// };
        /// db.update("visits", add_one)?;
        /// db.update("visits", add_one)?;
        /// assert_eq!(db.get("visits")?.as_deref(), Some(&2u64.to_le_bytes()[..]));
        /// # Ok::<(), shamba::Error>(())
        /// ```
        ///
        /// # Errors
        /// As `get` and `put`.
        pub fn update<V: AsRef<[u8]>>(
            &self,
            key: impl AsRef<[u8]>,
            change: impl FnMut(Option<&[u8]>) -> Option<V>,
        ) -> Result<()> {
            self.update_with(key, change, WriteOptions::new())
        }

        /// `update` with a durability and a deadline of its own, as of `compare_and_swap_with`.
        ///
        /// # Errors
        /// As `get` and `put_with`.
        pub fn update_with<V: AsRef<[u8]>>(
            &self,
            key: impl AsRef<[u8]>,
            change: impl FnMut(Option<&[u8]>) -> Option<V>,
            options: impl Into<WriteOptions>,
        ) -> Result<()> {
            let (at, writer) = (self.read_at(), &self.database().writer);
            conditional::update(&at, writer, key.as_ref(), change, options.into())
        }

        /// Lets the value of `key` live for `time_to_live` from now on, whatever it had left, and
        /// returns whether the key has a value. [`Duration::MAX`] is for ever. No other write comes
        /// in between: it is the value that is there that lives on. It is written again, as by
        /// `put`.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// use std::time::Duration;
        ///
        /// db.put("session:3", "user:2")?;
        /// assert!(db.set_time_to_live("session:3", Duration::from_secs(60))?);
        /// assert!(!db.set_time_to_live("session:4", Duration::from_secs(60))?);
        /// # Ok::<(), shamba::Error>(())
        /// ```
        ///
        /// # Errors
        /// As `get` and `put`.
        pub fn set_time_to_live(&self, key: impl AsRef<[u8]>, time_to_live: Duration) -> Result<bool> {
            self.set_time_to_live_with(key, time_to_live, WriteOptions::new())
        }

        /// `set_time_to_live` with a durability and a deadline of its own, as of
        /// `compare_and_swap_with`.
        ///
        /// # Errors
        /// As `get` and `put_with`; `Invalid` if `options` have a time to live, too.
        pub fn set_time_to_live_with(
            &self,
            key: impl AsRef<[u8]>,
            time_to_live: Duration,
            options: impl Into<WriteOptions>,
        ) -> Result<bool> {
            let (at, writer) = (self.read_at(), &self.database().writer);
            conditional::renew(&at, writer, key.as_ref(), time_to_live, options.into())
        }
    };
}
