//! Reading: the methods of a reader and the public iterators.

pub(crate) mod cursor;
pub(crate) mod reader;
