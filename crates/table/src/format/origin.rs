//! Origin: of which keyspace a table is, by its own word.
//!
//! Two properties, `keyspace` (its number, u32) and `keyspace_name`. No reader needs them while there is a
//! manifest; without one they are what tells a repair where the entries belong. Tables from before have none.

use bytes::Bytes;

use crate::block::Block;

/// The names of the properties.
pub(super) const NUMBER: &str = "keyspace";
pub(super) const NAME: &str = "keyspace_name";

/// The keyspace that a table was written for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Origin {
    /// Its number.
    pub keyspace: u32,
    /// Its name.
    pub name: String,
}

impl Origin {
    /// What the payload of a properties section says, if it says anything.
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
