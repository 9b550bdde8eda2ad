//! A table in words: what `shamba table FILE` prints.
