//! The methods that several handles have, as macros: reads of every handle, writes of those of one
//! keyspace. So each handle has them as inherent methods, which need no trait in scope.

/// The read methods that every handle has, by way of a [`ReadAt`].
macro_rules! read_methods {
    () => {
        /// The value of `key`, if it has one.
        ///
        /// # Errors
        /// `Invalid` for a key over 65,535 bytes, which is longer than any stored key; `Corruption`
        /// or `Io` when a file is damaged or cannot be read; `Closed` after `close`.
        pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
            self.read_at().get(key.as_ref())
        }

        /// Calls `read` with the value of `key`, if it has one, without copying it.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// db.put("greeting", "jambo")?;
        /// let length = db.get_with("greeting", |value| value.len())?;
        /// assert_eq!(length, Some(5));
        /// # Ok::<(), shamba::Error>(())
        /// ```
        ///
        /// # Errors
        /// As `get`.
        pub fn get_with<T>(&self, key: impl AsRef<[u8]>, read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
            self.read_at().get_with(key.as_ref(), read)
        }

        /// Copies the value of `key` into `buffer`, replacing its contents. Returns false, and
        /// leaves the buffer empty, if the key has no value.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// db.put("greeting", "jambo")?;
        /// // One buffer for many lookups.
        /// let mut value = Vec::new();
        /// assert!(db.get_into("greeting", &mut value)?);
        /// assert_eq!(value, b"jambo");
        /// # Ok::<(), shamba::Error>(())
        /// ```
        ///
        /// # Errors
        /// As `get`.
        pub fn get_into(&self, key: impl AsRef<[u8]>, buffer: &mut Vec<u8>) -> Result<bool> {
            self.read_at().get_into(key.as_ref(), buffer)
        }

        /// Whether `key` has a value.
        ///
        /// # Errors
        /// As `get`.
        pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
            self.read_at().contains_key(key.as_ref())
        }

        /// The values of many keys at one sequence number, in the order of the keys. Costs less per
        /// key than `get`.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// db.put("a", "1")?;
        /// let values = db.multi_get(["a", "b"])?;
        /// assert_eq!(values[0].as_deref(), Some(&b"1"[..]));
        /// assert_eq!(values[1], None);
        /// # Ok::<(), shamba::Error>(())
        /// ```
        ///
        /// # Errors
        /// As `get`.
        pub fn multi_get<K: AsRef<[u8]>>(
            &self,
            keys: impl IntoIterator<Item = K>,
        ) -> Result<Vec<Option<Slice>>> {
            self.read_at().multi_get(keys)
        }

        /// As `get`, without hashing the key again.
        ///
        /// # Errors
        /// As `get`; `Invalid` if the key was hashed by a database with another digest or seed.
        pub fn get_hashed(&self, key: &HashedKey) -> Result<Option<Slice>> {
            self.read_at().get_hashed(key)
        }

        /// The entries of a range, in key order, from both ends, as of this call. A bound may be
        /// longer than any key.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// for key in ["a", "b", "c", "d"] {
        ///     db.put(key, "")?;
        /// }
        /// let mut middle = db.range("b"..="c");
        /// assert_eq!(&middle.next().expect("an entry")?.0[..], b"b");
        /// // From the other end: the last key before "d".
        /// assert_eq!(&db.range(.."d").next_back().expect("an entry")?.0[..], b"c");
        /// # Ok::<(), shamba::Error>(())
        /// ```
        pub fn range(&self, range: impl KeyRange) -> Iter {
            self.read_at().range(range)
        }

        /// The entries whose keys begin with `prefix`, in key order, as of this call.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// db.put("user:1", "Asha")?;
        /// db.put("user:2", "Baraka")?;
        /// db.put("visit:1", "user:2")?;
        /// assert_eq!(db.prefix("user:").count(), 2);
        /// # Ok::<(), shamba::Error>(())
        /// ```
        pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
            self.read_at().prefix(prefix.as_ref())
        }

        /// All entries, in key order, as of this call.
        pub fn iter(&self) -> Iter {
            self.read_at().range(..)
        }

        /// The keys of a range, without their values: a large value is not read from its file.
        /// Counting them walks all of them.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// db.put("a", "1")?;
        /// db.put("b", vec![0; 1 << 20])?;
        /// let keys = db.keys(..).collect::<Result<Vec<_>, _>>()?;
        /// assert_eq!(keys, ["a", "b"]);
        /// # Ok::<(), shamba::Error>(())
        /// ```
        pub fn keys(&self, range: impl KeyRange) -> Keys {
            self.read_at().keys(range)
        }

        /// The entry with the smallest key.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// assert_eq!(db.first()?, None);
        /// db.put("b", "2")?;
        /// db.put("a", "1")?;
        /// let (key, value) = db.first()?.expect("an entry");
        /// assert_eq!((&key[..], &value[..]), (&b"a"[..], &b"1"[..]));
        /// assert_eq!(&db.last()?.expect("an entry").0[..], b"b");
        /// # Ok::<(), shamba::Error>(())
        /// ```
        ///
        /// # Errors
        /// As `get`.
        pub fn first(&self) -> Result<Option<(Slice, Slice)>> {
            self.iter().next().transpose()
        }

        /// The entry with the largest key.
        ///
        /// # Errors
        /// As `get`.
        pub fn last(&self) -> Result<Option<(Slice, Slice)>> {
            self.iter().next_back().transpose()
        }

        /// Approximate bytes that a range takes: of tables on storage, and of keys and values in
        /// memtables. Versions that are overwritten or deleted count until a compaction drops
        /// them. Reads at most indexes of tables; walks the entries of the range in memtables.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// for number in 0..1_000u32 {
        ///     db.put(number.to_be_bytes(), [7; 100])?;
        /// }
        /// let half = db.approximate_size(..500u32.to_be_bytes())?;
        /// assert_eq!(half, 500 * 104);
        /// assert_eq!(db.approximate_count(..500u32.to_be_bytes())?, 500);
        /// # Ok::<(), shamba::Error>(())
        /// ```
        ///
        /// # Errors
        /// `Closed`; `Invalid` if the keyspace was dropped.
        pub fn approximate_size(&self, range: impl KeyRange) -> Result<u64> {
            let estimate = self.read_at().estimate(range)?;
            Ok(estimate.table_bytes + estimate.memtable_bytes)
        }

        /// Approximate number of entries in a range, tombstones and overwritten versions included;
        /// otherwise as `approximate_size`. The exact number is that of `keys`, in time that grows
        /// with it.
        ///
        /// # Errors
        /// As `approximate_size`.
        pub fn approximate_count(&self, range: impl KeyRange) -> Result<u64> {
            Ok(self.read_at().estimate(range)?.entries)
        }

        /// At most `parts` - 1 keys that split a range into parts of about equal bytes, for scans
        /// in parallel. Fewer where there is too little to split.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// for number in 0..10_000u32 {
        ///     db.put(number.to_be_bytes(), "value")?;
        /// }
        /// let points = db.split_points(.., 4)?;
        /// let starts = [Vec::new()].into_iter().chain(points.clone());
        /// let ends = points.into_iter().chain([vec![0xff; 4]]);
        /// let counts: Vec<usize> = std::thread::scope(|scope| {
        ///     let count = |(start, end)| scope.spawn(|| db.range(start..end).count());
        ///     let threads: Vec<_> = starts.zip(ends).map(count).collect();
        ///     threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        /// });
        /// assert_eq!(counts.len(), 4);
        /// assert_eq!(counts.into_iter().sum::<usize>(), 10_000);
        /// # Ok::<(), shamba::Error>(())
        /// ```
        ///
        /// # Errors
        /// As `approximate_size`.
        pub fn split_points(&self, range: impl KeyRange, parts: usize) -> Result<Vec<Vec<u8>>> {
            self.read_at().split_points(range, parts)
        }

        /// A cursor without a position, which reads the state as of this call.
        pub fn cursor(&self) -> Cursor {
            self.read_at().cursor()
        }

        /// Explains a lookup of `key`: everything it touches and skips, with reasons.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// db.put("key", "value")?;
        /// let explanation = db.explain("key")?;
        /// println!("{explanation}"); // One line for each memtable, run, filter and block.
        /// # Ok::<(), shamba::Error>(())
        /// ```
        ///
        /// # Errors
        /// As `get`.
        pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
            self.read_at().explain(key.as_ref())
        }

        /// Explains which runs a scan of `prefix` reads, and which it leaves out by their filters
        /// ([`KeyspaceOptions::prefix`](crate::KeyspaceOptions::prefix)).
        ///
        /// # Errors
        /// `Invalid` if the keyspace was dropped; `Closed` after `close`; of reading a filter.
        pub fn explain_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<PrefixExplanation> {
            self.read_at().explain_prefix(prefix.as_ref())
        }
    };
}

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
    };
}
