//! Tests of the real binary: every command, every exit code, and all kinds of bad input.

mod bad_input;
mod batch;
mod bench;
mod changes;
mod demo;
mod dump_load;
mod inspect;
mod json_page;
mod keyspaces;
mod lab;
mod load;
mod merge;
mod mistakes;
mod plan;
mod put_get_scan;
mod repair;
mod support;
mod sweep;
mod traces;
mod tune;
mod value_file;
mod verdicts;
mod victim;
mod wording;
