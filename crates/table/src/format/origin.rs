//! Origin: the keyspace of a table, stored in the table.
//!
//! Two properties, `keyspace` (its number, u32) and `keyspace_name`. With a manifest no reader
//! needs them; without one, a repair assigns the entries by them. Older tables have none.

use bytes::Bytes;

use crate::block::Block;

/// The names of the properties.
pub(super) const NUMBER: &str = "keyspace";
pub(super) const NAME: &str = "keyspace_name";

/// The keyspace that a table was written for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Origin {
    /// Number of the keyspace.
    pub keyspace: u32,
    /// Name of the keyspace.
    pub name: String,
}

impl Origin {
    /// The origin in the payload of a properties section, if it has one.
    pub(crate) fn decode(payload: Bytes) -> Option<Self> {
        let block = Block::parse(payload).ok()?;
        let raw = |name: &str| {
            let found = block.entries().find(|entry| entry.key == name.as_bytes());
            found.map(|entry| entry.value.to_vec())
        };
        let keyspace = u32::from_le_bytes(raw(NUMBER)?.try_into().ok()?);
        Some(Self { keyspace, name: String::from_utf8(raw(NAME)?).ok()? })
    }
}
